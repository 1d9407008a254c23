package httpapi

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/schema"
	"pgregory.net/rapid"
)

// plainOrder is an order as encoding/json writes it: the dumb way that appendOrder is
// compared with.
type plainOrder struct {
	OrderID        string            `json:"order_id"`
	UID            string            `json:"uid"`
	BID            string            `json:"bid"`
	OutTradeNo     string            `json:"out_trade_no"`
	Amount         int64             `json:"amount"`
	Currency       string            `json:"currency"`
	Subject        string            `json:"subject"`
	Status         string            `json:"status"`
	Version        int64             `json:"version"`
	PaidAmount     int64             `json:"paid_amount"`
	RefundedAmount int64             `json:"refunded_amount"`
	Channel        *string           `json:"channel"`
	ChannelTradeNo *string           `json:"channel_trade_no"`
	Metadata       map[string]string `json:"metadata"`
	Unapplied      int64             `json:"unapplied_payments"`
	CloseReason    *string           `json:"close_reason"`
	CreatedAt      string            `json:"created_at"`
	UpdatedAt      string            `json:"updated_at"`
	ExpiresAt      string            `json:"expires_at"`
	PaidAt         *string           `json:"paid_at"`
	ClosedAt       *string           `json:"closed_at"`
}

func plain(o schema.Order) (p plainOrder) {
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	at := func(m schema.Millis) string { return m.Time().Format("2006-01-02T15:04:05.000Z07:00") }
	atOrNil := func(m schema.Millis) *string {
		if m == 0 {
			return nil
		}
		return text(at(m))
	}
	p = plainOrder{
		OrderID: o.OrderID().String(), UID: strconv.FormatInt(o.UID, 10), BID: strconv.FormatInt(o.BID, 10),
		OutTradeNo: o.OutTradeNo, Amount: o.Amount, Currency: o.Currency, Subject: o.Subject, Status: o.Status.String(),
		Version: o.Ver, PaidAmount: o.PaidAmount, RefundedAmount: o.RefundedAmount, Channel: text(o.Channel),
		ChannelTradeNo: text(o.ChannelTradeNo), Unapplied: o.Unapplied, CreatedAt: at(o.CreatedAt()),
		UpdatedAt: at(o.UpdatedAt), ExpiresAt: at(o.ExpiresAt), PaidAt: atOrNil(o.PaidAt), ClosedAt: atOrNil(o.ClosedAt),
	}
	if o.CloseReason != 0 {
		p.CloseReason = text(o.CloseReason.String())
	}
	if err := json.Unmarshal([]byte(o.Metadata), &p.Metadata); err != nil {
		panic(err)
	}
	return p
}

func someOrder(t *rapid.T) schema.Order {
	key := rapid.Int64Range(1, 1<<63-1)
	amount := rapid.Int64Range(0, amountMax)
	text := rapid.String().Filter(utf8.ValidString)
	at := rapid.Int64Range(1735689600000, 3934137600000) // 2025 … 2094
	orNone := func(g *rapid.Generator[int64]) *rapid.Generator[int64] { return rapid.OneOf(rapid.Just(int64(0)), g) }
	metadata, _ := json.Marshal(rapid.MapOfN(rapid.StringMatching(`[A-Za-z0-9_.-]{1,40}`), text, 0, 16).Draw(t, "metadata"))
	return schema.Order{
		ID: idgen.FirstAt(time.UnixMilli(at.Draw(t, "created"))) + 5, UID: key.Draw(t, "uid"), BID: key.Draw(t, "bid"),
		OutTradeNo: text.Draw(t, "number"), Amount: amount.Draw(t, "amount"), Currency: "CNY", Subject: text.Draw(t, "subject"),
		Metadata: string(metadata), Status: schema.Status(rapid.IntRange(1, 5).Draw(t, "status")), Ver: key.Draw(t, "ver"),
		PaidAmount: amount.Draw(t, "paid"), RefundedAmount: amount.Draw(t, "refunded"),
		Channel: text.Draw(t, "channel"), ChannelTradeNo: text.Draw(t, "trade"), Unapplied: amount.Draw(t, "unapplied"),
		CloseReason: schema.CloseReason(rapid.IntRange(0, 3).Draw(t, "reason")),
		ExpiresAt:   schema.Millis(at.Draw(t, "expires")), UpdatedAt: schema.Millis(at.Draw(t, "updated")),
		PaidAt: schema.Millis(orNone(at).Draw(t, "paid at")), ClosedAt: schema.Millis(orNone(at).Draw(t, "closed at")),
	}
}

func TestAnOrderIsEncodedAsTheStandardLibraryWould(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := someOrder(t)
		got := appendOrder(nil, &o)
		var back plainOrder
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatalf("%v: %s", err, got)
		}
		if diff := cmp.Diff(plain(o), back); diff != "" {
			t.Fatal(diff)
		}
	})
}

// A row that others wrote may hold anything. The answer stays valid JSON.
func TestTextThatIsNotUTF8IsAnsweredAsValidJSON(t *testing.T) {
	o := schema.Order{UID: 1, BID: 1, Metadata: "{}", Status: schema.Created, Subject: "a\xff\"\x00\n", Channel: "\xed\xa0\x80"}
	var back plainOrder
	if err := json.Unmarshal(appendOrder(nil, &o), &back); err != nil || back.Subject != "a\ufffd\"\x00\n" {
		t.Errorf("%v %q", err, back.Subject)
	}
}

var benchOrder = schema.Order{
	ID: 253150322220879872, UID: 9527, BID: 1001, OutTradeNo: "20261130-000017", Amount: 19900, Currency: "CNY",
	Subject: "Le Max 2 手机", Metadata: `{"colour":"gold","sku":"lm2-64"}`, Status: schema.Paid, Ver: 2, PaidAmount: 19900,
	Channel: "wechat", ChannelTradeNo: "4200001234202611301234567890", ExpiresAt: 1796054400123, UpdatedAt: 1796052600123,
	PaidAt: 1796052600123,
}

func BenchmarkEncodeOrder(b *testing.B) {
	buf := make([]byte, 0, 2048)
	b.ReportAllocs()
	for b.Loop() {
		buf = appendOrder(buf[:0], &benchOrder)
	}
	b.SetBytes(int64(len(buf)))
}
