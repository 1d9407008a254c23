package lease

// SetNow is what takes the table's time.
const SetNow = setNow
