package twins

// lives are the guards of an order's life.
var lives = []twin{
	{
		guard:   "a refund never exceeds what is left",
		file:    "ordersvc/change.go",
		with:    "case r.Amount > left:",
		without: "case false:",
		pkg:     "ordersvc", test: "TestALifeStepByStep", says: "want ordersvc: the refund exceeds", fast: true,
	},
	{
		guard:   "no journal can refund more than was paid",
		file:    "ordersvc/life.go",
		with:    "if e.Amount < 1 || e.Amount > left || ",
		without: "if ",
		pkg:     "ordersvc", test: "TestFoldFindsWhatCannotBe", says: "more refunded than paid: nothing was found", fast: true,
	},
	{
		guard:   "a refund's number names one refund",
		file:    "ordersvc/change.go",
		with:    "if before.Unapplied == 0 && before.Entry.Amount == r.Amount {",
		without: "if true {",
		pkg:     "ordersvc", test: "TestALifeStepByStep", says: "want ordersvc: the out_refund_no", fast: true,
	},
	{
		guard:   "a closed order is not paid",
		file:    "ordersvc/life.go",
		with:    "schema.KindPaid:     {0, pays, duplicate, duplicate, duplicate, late},",
		without: "schema.KindPaid:     {0, pays, duplicate, duplicate, duplicate, pays},",
		pkg:     "ordersvc", test: "TestFault6EveryPermutation", says: "ordersvc.Pay: from {", fast: true,
	},
	{
		guard:   "a second payment is recorded, not applied",
		file:    "ordersvc/life.go",
		with:    "schema.KindPaid:     {0, pays, duplicate, duplicate, duplicate, late},",
		without: "schema.KindPaid:     {0, pays, pays, duplicate, duplicate, late},",
		pkg:     "ordersvc", test: "TestALifeStepByStep", says: "want ordersvc: the order is paid", fast: true,
	},
	{
		guard:   "an order expires half a minute after its time",
		file:    "ordersvc/change.go",
		with:    "now < l.Order.ExpiresAt+ExpiryGrace",
		without: "now < l.Order.ExpiresAt",
		pkg:     "ordersvc", test: "TestALifeStepByStep", says: "want ordersvc: the order has not expired", fast: true,
	},
	{
		guard:   "an unapplied payment is refunded once",
		file:    "ordersvc/change.go",
		with:    "	case u.State != UnappliedOpen:\n		return decision{err: ErrSettled}\n	}\n	if _, taken",
		without: "	}\n	if _, taken",
		pkg:     "ordersvc", test: "TestALifeStepByStep", says: "want ordersvc: the unapplied payment is settled", fast: true,
	},
	{
		guard:   "a payment that was recorded is not recorded again",
		file:    "ordersvc/change.go",
		with:    "if e := l.find(unapplied); e != nil {",
		without: "if e := l.find(unapplied); false {",
		pkg:     "ordersvc", test: "TestALifeStepByStep", says: "the repeat wrote", fast: true,
	},
	{
		guard:   "another buyer's order is not there",
		file:    "ordersvc/change.go",
		with:    "(c.UID != 0 && c.UID != o.UID)",
		without: "false",
		pkg:     "ordersvc/memstore", test: "TestStore/a foreign order", says: "foreign 0", fast: true,
	},
	{
		guard:   "another merchant's order is not there",
		file:    "ordersvc/change.go",
		with:    "(c.BID != 0 && c.BID != o.BID)",
		without: "false",
		pkg:     "ordersvc/memstore", test: "TestStore/a foreign order", says: "foreign 1", fast: true,
	},
	{
		guard:   "bodies of batches have a bound together",
		file:    "httpapi/batch.go",
		with:    "if !c.api.batches.TryAcquire(size) {",
		without: "if false {",
		pkg:     "httpapi", test: "TestBatchesHaveABound", says: "want 503 overloaded", fast: true,
	},
}
