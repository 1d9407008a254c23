package e2e_test

import (
	"fmt"
	"math"
	"slices"

	"github.com/octopay/octopay/auth"
	"pgregory.net/rapid"
)

// A script is what will happen: orders, what is done to each by three callers at once,
// and when each fault comes.
type script struct {
	orders  []scriptedOrder
	faults  []fault // in order
	inBatch int     // the first so many are created by one batch
}

type scriptedOrder struct {
	amount   int64
	currency string
	deeds    []deed
}

// A fault comes when this share of all deeds is done.
type fault struct {
	kind string
	at   float64
}

var faultKinds = []string{"cut before it is sent", "cut after it is sent", "cut after the commit", "kill -9", "deadlock"}

func scripts() *rapid.Generator[script] {
	return rapid.Custom(func(t *rapid.T) (s script) {
		for range rapid.IntRange(4, 7).Draw(t, "orders") {
			o := scriptedOrder{
				amount:   rapid.SampledFrom([]int64{2, 101, 19900, 1<<53 - 1}).Draw(t, "amount"),
				currency: rapid.SampledFrom([]string{"CNY", "JPY", "KWD"}).Draw(t, "currency"),
			}
			kinds := []string{"create", "get", "pay", "pay", "pay", "refund", "refund", "refund", "result", "result", "result", "settle", "settle", "void"}
			if rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
				kinds = append(kinds, "close", "expire")
			}
			o.deeds = rapid.SliceOfN(deeds(kinds, o.amount, o.currency), 15, 30).Draw(t, "deeds")
			s.orders = append(s.orders, o)
		}
		s.inBatch = rapid.IntRange(0, len(s.orders)).Draw(t, "in a batch")
		for _, kind := range rapid.Permutation(faultKinds).Draw(t, "faults") {
			s.faults = append(s.faults, fault{kind, rapid.Float64Range(0, 0.5).Draw(t, "at")})
		}
		slices.SortStableFunc(s.faults, func(a, b fault) int { return int(math.Copysign(1, a.at-b.at)) })
		return s
	})
}

// deeds are what may be done to an order of this amount: mostly what fits it, and
// everything that must be refused or recorded.
func deeds(kinds []string, amount int64, currency string) *rapid.Generator[deed] {
	return rapid.Custom(func(t *rapid.T) deed {
		d := deed{kind: rapid.SampledFrom(kinds).Draw(t, "kind"), amount: amount, currency: currency}
		switch d.kind {
		case "create":
			d.amount = amount - int64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "less"))
		case "pay":
			d.number = rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "number")
			d.amount = amount - int64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "less"))
			d.currency = rapid.SampledFrom([]string{currency, currency, currency, "USD"}).Draw(t, "currency")
		case "refund":
			d.number = rapid.SampledFrom([]string{"r1", "r1", "r2", "r3"}).Draw(t, "number")
			d.amount = rapid.SampledFrom([]int64{1, 1, amount/2 + 1, amount - amount/2, amount}).Draw(t, "refunded")
		case "result":
			d.number, d.ok = rapid.SampledFrom([]string{"r1", "r1", "u1"}).Draw(t, "number"), rapid.Bool().Draw(t, "ok")
		case "settle":
			d.number, d.seq = rapid.SampledFrom([]string{"u1", "u2", "r1"}).Draw(t, "number"), rapid.IntRange(1, 6).Draw(t, "seq")
		case "void":
			d.seq = rapid.IntRange(1, 6).Draw(t, "seq")
		}
		return d
	})
}

// call returns the deed's call below the order's path, its body, and who makes it.
func (d deed) call(o scriptedOrder) (path string, body map[string]any, role auth.Role) {
	switch d.kind {
	case "pay":
		return "/pay", map[string]any{"channel": "wechat", "channel_trade_no": d.number, "amount": d.amount, "currency": d.currency}, auth.Channel
	case "close":
		return "/close", map[string]any{"reason": "buyer"}, auth.App
	case "refund":
		return "/refunds", map[string]any{"out_refund_no": d.number, "amount": d.amount}, auth.App
	case "result":
		return "/refunds/" + d.number + "/result", map[string]any{"result": map[bool]string{true: "succeeded", false: "failed"}[d.ok]}, auth.Channel
	case "settle":
		return fmt.Sprintf("/unapplied-payments/%d/refund", d.seq), map[string]any{"out_refund_no": d.number}, auth.App
	case "void":
		return fmt.Sprintf("/unapplied-payments/%d/void", d.seq), map[string]any{"reason": "tested"}, auth.Ops
	}
	return "", nil, auth.App
}

// op is how the journal calls the deed.
func (d deed) op() string {
	switch d.kind {
	case "pay":
		return "pay:wechat:" + d.number
	case "refund":
		return "refund:" + d.number
	case "result":
		return "refund_result:" + d.number + ":" + map[bool]string{true: "succeeded", false: "failed"}[d.ok]
	case "settle":
		return fmt.Sprint("unapplied_refund:", d.seq)
	case "void":
		return fmt.Sprint("unapplied_void:", d.seq)
	}
	return ""
}
