package payconfig

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Text returns the config's canonical text: JSON without version and hash, which is
// what the hash is of and what is stored. Equal configs have equal texts, so its form
// is part of a stored format:
//
//	{"unknown_merchants":"refuse","merchants":[
//	{"bid":"1001","name":"Shop","enabled":true,"currencies":["CNY","USD"],"rate":500,"timezone":"Asia/Shanghai","notify_url":"https://shop.example/octopay"}
//	],"channels":[
//	{"channel":"wechat","name":"WeChat Pay","enabled":true}
//	]}
//
// Merchants are sorted by bid, channels by name, currencies by code; rate and notify_url
// are left out where there is none; texts escape only what JSON requires. An entry has a
// line of its own, so that what compares lines compares entries.
func (s *Snapshot) Text() string { return s.text }

// Document returns the text with version and hash before the rest, as
// GET /v1/admin/config answers and as Decode reads.
func (s *Snapshot) Document() []byte {
	b := make([]byte, 0, len(s.text)+headMax)
	b = strconv.AppendInt(append(b, `{"version":`...), s.version, 10)
	b = append(append(append(b, `,"hash":"`...), s.hash...), `",`...)
	return append(b, s.text[len("{"):]...)
}

// headMax bounds what Document has more than Text.
const headMax = 128

func (s *Snapshot) appendText(b []byte) []byte {
	policy := "accept"
	if s.refuseUnknown {
		policy = "refuse"
	}
	b = quote(append(b, `{"unknown_merchants":`...), policy)
	b = appendList(append(b, `,"merchants":[`...), s.merchants, appendMerchant)
	b = appendList(append(b, `,"channels":[`...), s.channels, appendChannel)
	return append(b, '}')
}

// appendList appends the entries of an array, each in a line, and its end.
func appendList[T any](b []byte, all []T, one func([]byte, *T) []byte) []byte {
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(append(b, '\n'), &all[i])
	}
	if len(all) > 0 {
		b = append(b, '\n')
	}
	return append(b, ']')
}

func appendMerchant(b []byte, m *Merchant) []byte {
	b = strconv.AppendInt(append(b, `{"bid":"`...), m.BID, 10)
	b = quote(append(b, `","name":`...), m.Name)
	b = strconv.AppendBool(append(b, `,"enabled":`...), m.Enabled)
	b = append(b, `,"currencies":[`...)
	for i, code := range m.Currencies.Codes() {
		if i > 0 {
			b = append(b, ',')
		}
		b = quote(b, code)
	}
	b = append(b, ']')
	if m.Rate > 0 {
		b = strconv.AppendInt(append(b, `,"rate":`...), int64(m.Rate), 10)
	}
	b = quote(append(b, `,"timezone":`...), m.Timezone)
	if m.NotifyURL != "" {
		b = quote(append(b, `,"notify_url":`...), m.NotifyURL)
	}
	return append(b, '}')
}

func appendChannel(b []byte, c *Channel) []byte {
	b = quote(append(b, `{"channel":`...), c.Channel)
	b = quote(append(b, `,"name":`...), c.Name)
	b = strconv.AppendBool(append(b, `,"enabled":`...), c.Enabled)
	return append(b, '}')
}

// quote cannot fail: every text was valid UTF-8 when it was decoded.
func quote(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
