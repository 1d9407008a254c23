package twins

var configs = []twin{
	{
		guard:   "a config follows the version that was expected",
		file:    "payconfig/store.go",
		with:    "AS kept) = ?\"+",
		without: "AS kept) >= ? - 1\"+",
		pkg:     "payconfig", test: "TestOnlyWhoKnowsTheNewestSets", says: "on version 3: <nil>",
	},
	{
		guard:   "a version is that of one who set it",
		file:    "payconfig/store.go",
		with:    "if hash != c.hash || stored.By != by {",
		without: "if hash == \"\" {",
		pkg:     "payconfig", test: "TestOneOfManyWins", says: "was set by",
	},
	{
		guard:   "a set whose answer is lost is settled",
		file:    "payconfig/store.go",
		with:    "again := try < setTries && (unknown || class == dberr.Retryable)",
		without: "again := try < setTries && class == dberr.Retryable",
		pkg:     "payconfig", test: "TestASetThatIsCutIsSettled", says: "outcome unknown",
	},
	{
		guard:   "a stored config is the text of its hash",
		file:    "payconfig/store.go",
		with:    "case read.text != text || read.hash != hash:",
		without: "case false:",
		pkg:     "payconfig", test: "TestWhatIsDamagedIsNotRead", says: "another text",
	},
	{
		guard:   "a config that is lost doesn't accept everybody",
		file:    "payconfig/watch.go",
		with:    "case version == 0 && force == nil:",
		without: "case version == 0:",
		pkg:     "payconfig", test: "TestALostConfigIsNoConfigThatAccepts", says: "in force is {\"version\":0",
	},
	{
		guard:   "what is in force gives way to nothing older because the newest is damaged",
		file:    "payconfig/watch.go",
		with:    "if force := w.force.Load(); force == nil || force.version < stored.Version() {",
		without: "if true {",
		pkg:     "payconfig", test: "TestTheLastGoodConfigStays", says: "version 2, ",
	},
	{
		guard:   "an unknown merchant is refused where the config says so",
		file:    "payconfig/payconfig.go",
		with:    "case !known && s.refuseUnknown:",
		without: "case false:",
		pkg:     "payconfig", test: "TestWhoMayCreate", says: "an unknown one: <nil>", fast: true,
	},
	{
		guard:   "a disabled merchant creates nothing",
		file:    "payconfig/payconfig.go",
		with:    "case !s.merchants[i].Enabled:",
		without: "case false:",
		pkg:     "payconfig", test: "TestWhoMayCreate", says: "a disabled one: <nil>", fast: true,
	},
	{
		guard:   "nothing follows a config",
		file:    "payconfig/decode.go",
		with:    "if _, err := d.dec.ReadToken(); !errors.Is(err, io.EOF) {",
		without: "if false {",
		pkg:     "payconfig", test: "TestTextsThatCannotBeRead", says: "want something follows", fast: true,
	},
}
