package twins

// hostility is what clients send that they should not.
var hostility = []twin{
	{
		guard:   "what doesn't read like a name is not repeated as one",
		file:    "httpapi/problem/problem.go",
		with:    "case i > 0 && c >= '0' && c <= '9' && digits < fieldDigitsMax:",
		without: "case c >= '0' && c <= '9':",
		pkg:     "httpapi", test: "TestWhatClientsSendComesToLightNowhere", says: "repeats [a card",
	},
	{
		guard:   "a name of metadata is repeated only if it reads like one",
		file:    "httpapi/decode.go",
		with:    "	if s := problem.FieldName(string(name), \"\"); s != \"\" {\n		return \"metadata.\" + s\n	}\n	return \"metadata\"",
		without: "	return \"metadata.\" + string(name)",
		pkg:     "httpapi", test: "TestFieldsThatAreFaulty", says: "metadata.6222020012345678", fast: true,
	},
	{
		guard:   "what a panic threw is not logged",
		file:    "httpapi/log.go",
		with:    "text := fmt.Sprintf(\"%T\", v)",
		without: "text := fmt.Sprint(v)",
		pkg:     "httpapi", test: "TestWhatClientsSendComesToLightNowhere", says: "the log has [",
	},
	{
		guard:   "what a commit threw is not written when the process ends",
		file:    "lane/lane.go",
		with:    "	defer crash()\n",
		without: "",
		pkg:     "lane", test: "TestAPanicOfACommitEndsTheProcessAndTellsNoRow", says: "it tells the row", fast: true,
	},
	{
		guard:   "what an error quotes is not logged",
		file:    "httpapi/log.go",
		with:    "	return text[:first] + \"…\" + text[last+1:]",
		without: "	return text",
		pkg:     "httpapi", test: "TestWhatClientsSendComesToLightNowhere", says: "the log has [",
	},
	{
		guard:   "a header of a signature comes once",
		file:    "httpapi/access.go",
		with:    "	if sent := c.r.Header[name]; len(sent) == 1 {\n		return sent[0]\n	}\n	return \"\"",
		without: "	return c.r.Header.Get(name)",
		pkg:     "httpapi", test: "TestAHeaderOfASignatureThatComesTwiceIsNone", says: "verified were", fast: true,
	},
	{
		guard:   "a batch gets its memory at once",
		file:    "httpapi/body.go",
		with:    "said > bodyMax && said >= int64(cap(buf))",
		without: "false",
		pkg:     "httpapi", test: "TestABatchTakesTheMemoryOfItsLengthOnce", says: "bytes, more than", fast: true,
	},
	{
		guard:   "another merchant's refunds are not there",
		file:    "httpapi/changes.go",
		with:    "if err == nil && (uid != 0 && uid != life.Order.UID || !c.sees(life.Order.BID)) {",
		without: "if err == nil && uid != 0 && uid != life.Order.UID {",
		pkg:     "httpapi", test: "TestAnotherMerchantsObjectsInEveryCall", says: "status 200, want 404", fast: true,
	},
	{
		guard:   "an amount is at most what every language can count",
		file:    "httpapi/fields.go",
		with:    "amountMax       = 1<<53 - 1",
		without: "amountMax       = 1<<53",
		pkg:     "httpapi", test: "TestAmountsAndCurrenciesInEverySpellingInEveryCall", says: "amount one more than the most", fast: true,
	},
	{
		guard:   "a text of the log that can't travel is a broken row",
		file:    "syncer/binlog/plan.go",
		with:    "			if !utf8.ValidString(s) {\n				return errNotUTF8\n			}\n			v = strings.Clone(s)",
		without: "			v = strings.Clone(s)",
		pkg:     "syncer/binlog", test: "FuzzRow", says: "was taken", fast: true,
	},
	{
		guard:   "a file of keys is what was written",
		file:    "auth/file.go",
		with:    "if len(text) < headLen || !bytes.Equal(text[:headLen], head(text[headLen:])) {",
		without: "if len(text) < headLen {",
		pkg:     "auth", test: "FuzzKeysFile", says: "a bit turned over isn't found", fast: true,
	},
}
