package twins

// audits are the guards of the checks that operators run.
var audits = []twin{
	{
		guard:   "rows and journals are checked as of one moment",
		file:    "services/octopay/checkpages.go",
		with:    "&sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}",
		without: "&sql.TxOptions{ReadOnly: true}",
		pkg:     "services/octopay", test: "TestAChangeWhileOrdersAreCheckedIsNoFault", says: "DIFFERS ",
	},
	{
		guard:   "a copy is judged when what was committed has arrived",
		file:    "services/octopay/checkpages.go",
		with:    "if reason := a.arrived(ctx, w); reason != \"\" {",
		without: "if reason := \"\"; reason != \"\" {",
		pkg:     "services/octopay", test: "TestACopyOnItsWayIsNoFault", says: "it arrives: ",
	},
	{
		guard:   "a copy that changed is looked at again",
		file:    "services/octopay/checkpages.go",
		with:    "case now == before:",
		without: "case now == before || true:",
		pkg:     "services/octopay", test: "TestACopyOnItsWayIsNoFault", says: "it is another each time: ",
	},
	{
		guard:   "a check of orders that was ended goes on where the least table was",
		file:    "services/octopay/checkorders.go",
		with:    "next, all = min(next, w.next), false",
		without: "next, all = max(next%math.MaxInt64, w.next), false",
		pkg:     "services/octopay", test: "TestACheckOfOrdersIsCutAndGoesOn", says: "both found ",
	},
	{
		guard:   "an entry that is missing is found though it changed no column",
		file:    "ordersvc/audit.go",
		with:    "if want := l.Order.Ver + 1; e.Seq > want {",
		without: "if want := l.Order.Ver + 1; false {",
		pkg:     "ordersvc", test: "TestAuditNamesWhatIsWrong", says: "one_that_changed_no_column_is_missing", fast: true,
	},
	{
		guard:   "a key whose secret nobody can read is counted as such",
		file:    "auth/survey.go",
		with:    "if e.key.signing.err != nil {",
		without: "if false {",
		pkg:     "auth", test: "TestASurveyCountsKeys", says: "sealed",
	},
}
