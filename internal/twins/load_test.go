package twins

// Fault 33: the load tool was the bottleneck, or hid a stall.
var loads = []twin{
	{
		guard:   "latency counts from when a request was due",
		file:    "loadtest/openloop/meter.go",
		with:    "latency := r.End().Sub(m.start.Add(due))",
		without: "latency := r.Latency",
		pkg:     "loadtest/openloop", test: "TestFault33AStallOfTwoSecondsShows", says: "a stall of",
	},
	{
		guard:   "a generator that sent too little is invalid",
		file:    "loadtest/openloop/meter.go",
		with:    "if float64(r.Sent) < sentLeast*float64(r.Offered) {",
		without: "if false {",
		pkg:     "loadtest/openloop", test: "TestFault33AThrottledGeneratorIsInvalid", says: "is not among the reasons", fast: true,
	},
	{
		guard:   "a generator that was late is invalid",
		file:    "loadtest/openloop/meter.go",
		with:    "r.LagMs.P99 > limit {",
		without: "r.LagMs.P99 > 1e9*limit {",
		pkg:     "loadtest/openloop", test: "TestFault33AThrottledGeneratorIsInvalid", says: "is not among the reasons", fast: true,
	},
	{
		guard:   "what is due and never sent is dropped, and counted",
		file:    "loadtest/openloop/meter.go",
		with:    "Offered: int64(offered), Sent: m.sent",
		without: "Offered: m.sent, Sent: m.sent",
		pkg:     "loadtest/openloop", test: "TestFault33AThrottledGeneratorIsInvalid", says: "is not among the reasons",
	},
	{
		guard:   "requests that run out make a run invalid",
		file:    "loadtest/closedloop/closedloop.go",
		with:    "if o.Empty > 0 {",
		without: "if false {",
		pkg:     "loadtest/closedloop", test: "TestFault33RequestsThatRunOutMakeARunInvalid", says: "it says",
	},
	{
		guard:   "an order id of another buyer's table acknowledges nothing",
		file:    "loadtest/traffic/answer.go",
		with:    "case !id.Of(o.UID):",
		without: "case false:",
		pkg:     "loadtest/traffic", test: "TestWhatAcknowledgesACreate", says: "another buyer's id", fast: true,
	},
	{
		guard:   "a repeat that is answered with another order acknowledges nothing",
		file:    "loadtest/traffic/answer.go",
		with:    "case before.id != id:",
		without: "case false:",
		pkg:     "loadtest/traffic", test: "TestARepeatIsAnsweredWithTheFirstsOrder", says: "answer 1", fast: true,
	},
	{
		guard:   "an order that was acknowledged to another create is wrong",
		file:    "loadtest/check/check.go",
		with:    "if acked && a.no != t.OutTradeNo {",
		without: "if false {",
		pkg:     "loadtest/check", test: "TestWhatIsWrongIsCountedAndNamed", says: "swapped", fast: true,
	},
	{
		guard:   "a run without a success is invalid",
		file:    "loadtest/report/failure.go",
		with:    "case r.Succeeded() == 0:",
		without: "case false:",
		pkg:     "loadtest/report", test: "TestDoubts", says: "all 404", fast: true,
	},
	{
		guard:   "the generator closes what it doesn't use before the service does",
		file:    "loadtest/openloop/wire.go",
		with:    "IdleConnTimeout: idleMax, ",
		without: "",
		pkg:     "loadtest/openloop", test: "TestASpareConnectionIsClosedByTheGenerator", says: "that wasn't used",
	},
	{
		guard:   "an order of a batch is acknowledged by the rule for one that is sent alone",
		file:    "loadtest/traffic/answer.go",
		with:    "		fault = take(r.success(), a)\n",
		without: "		_ = take(r.success(), a)\n",
		pkg:     "loadtest/traffic", test: "TestWhatAcknowledgesABatch", says: "200 that is no replay, ", fast: true,
	},
	{
		guard:   "a batch without an answer leaves all its orders open",
		file:    "loadtest/report/verdict.go",
		with:    "			count *= each\n",
		without: "",
		pkg:     "loadtest/openloop", test: "TestABatchIsCountedByItsOrders", says: "orders are unsettled, want", fast: true,
	},
}
