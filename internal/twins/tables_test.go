package twins

var leases, orders, databases, collecting, transport, applying, reading, inlet, programs []twin
