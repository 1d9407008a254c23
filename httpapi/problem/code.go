// Package problem is the one place where errors become HTTP: which code and status
// an error has, and how its answer reads (application/problem+json, RFC 9457).
//
// The code is the contract. A code is never renamed and never gets another status;
// the table below is fixed by a golden test. It leaves the sending, and the headers
// that belong to the request, to its caller.
package problem

import "net/http"

// A Code says what went wrong. 0 is none: all is well.
type Code uint8

// The codes, in the order of their status. The numbers are not part of any format.
const (
	MalformedJSON Code = iota + 1
	UnknownField
	InvalidParameter
	InvalidCursor
	Unauthenticated
	SignatureInvalid
	TimestampSkew
	ScopeDenied
	MerchantDisabled
	NotFound
	OrderNotFound
	RefundNotFound
	UnappliedPaymentNotFound
	MerchantNotFound
	MethodNotAllowed
	RequestTimeout
	OutTradeNoReused
	OutRefundNoReused
	ChannelTradeNoReused
	OrderAlreadyPaid
	OrderNotPaid
	OrderClosed
	OrderFullyRefunded
	TooManyRefunds
	RefundAlreadySucceeded
	UnappliedPaymentSettled
	BodyTooLarge
	URITooLong
	UnsupportedMediaType
	Misdirected
	CurrencyUnsupported
	CurrencyMismatch
	AmountMismatch
	RefundExceedsPaid
	RateLimited
	Internal
	Overloaded
	ShardUnavailable
	Draining
	OutcomeUnknown
	// Codes is the number of codes, 0 included.
	Codes
)

var table = [Codes]struct {
	name   string
	status int
	title  string
	detail string
}{
	{"", http.StatusOK, "", ""},
	{"malformed_json", 400, "The body is not acceptable JSON",
		"The body must be one JSON object in valid UTF-8: no name twice, at most 8 levels deep, nothing after it. Nothing was written."},
	{"unknown_field", 400, "The body has unknown fields",
		"Every name is known and spelt exactly, upper and lower case included. errors lists the unknown ones. Nothing was written."},
	{"invalid_parameter", 400, "The request has faulty fields",
		"errors lists each faulty field and what is wrong with it. Nothing was written."},
	{"invalid_cursor", 400, "The cursor is not one of this list",
		"Send next_cursor as it was given, to the same list with the same filters; only limit may change."},
	{"unauthenticated", 401, "Who calls isn't known", "Send a key that lives: Authorization: Bearer opk_… Nothing was written."},
	{"signature_invalid", 401, "The signature is not right",
		"A payment result of this key is signed: see webhook-id, webhook-timestamp and webhook-signature. Nothing was written."},
	{"timestamp_skew", 401, "The signature's time is too far off", "webhook-timestamp must be within 300 seconds of this server's clock. Nothing was written."},
	{"scope_denied", 403, "The key may not do that", "The key's role has not this call, or the object is not its merchant's. Nothing was written."},
	{"merchant_disabled", 403, "The merchant gets no new orders", "The merchant is disabled. Orders that it has go on. Nothing was written."},
	{"not_found", 404, "No such path", "No call has this path. Paths have no trailing or double slash, no segment . or .., and need no escaping."},
	{"order_not_found", 404, "No such order",
		"No order has this identity now. A create that is still under way may make one."},
	{"refund_not_found", 404, "No such refund", "The order has no refund under this number."},
	{"unapplied_payment_not_found", 404, "No such unapplied payment", "The order has no unapplied payment under this number."},
	{"merchant_not_found", 404, "No such merchant", "This key sees no such merchant, or there is none."},
	{"method_not_allowed", 405, "The path does not have this method", "The header Allow lists the methods of this path."},
	{"request_timeout", 408, "The request came too slowly", "The body did not arrive in time. Nothing was written; send it again."},
	{"out_trade_no_reused", 409, "The out_trade_no is taken",
		"This buyer has another order of this merchant under the out_trade_no: amount, currency or subject differ. Nothing was written."},
	{"out_refund_no_reused", 409, "The out_refund_no is taken",
		"The order has another refund under this number: the amount differs, or it is of another payment. Nothing was written."},
	{"channel_trade_no_reused", 409, "The payment was told with another amount",
		"This payment was applied to the order, or given back, with another amount or currency. Nothing was written."},
	{"order_already_paid", 409, "The order is paid",
		"The order is paid. With recorded the money that came is kept as an unapplied payment, to be refunded or voided."},
	{"order_not_paid", 409, "The order is not paid", "Only what was paid can be refunded. Nothing was written."},
	{"order_closed", 409, "The order is closed", "A closed order has no payment to refund; one that came late is an unapplied payment. Nothing was written."},
	{"order_fully_refunded", 409, "Nothing is left to refund", "All that was paid is refunded. Nothing was written."},
	{"too_many_refunds", 409, "Too many refunds", "An order has at most 50 refunds. Nothing was written."},
	{"refund_already_succeeded", 409, "The refund has succeeded", "A refund that has succeeded can't fail any more. Nothing was written."},
	{"unapplied_payment_settled", 409, "The unapplied payment is settled", "It was refunded or voided before, as current_status says. Nothing was written."},
	{"body_too_large", 413, "The body is too large", "The body is over the limit of this call. Nothing was written."},
	{"uri_too_long", 414, "The URI is too long", "The URI is over the limit."},
	{"unsupported_media_type", 415, "The body has an unsupported form",
		"A body is application/json in UTF-8, without any Content-Encoding. Nothing was written."},
	{"misdirected", 421, "This server does not serve that host", "Only local host names are served here."},
	{"currency_unsupported", 422, "The currency is not enabled", "This merchant doesn't take the currency. Nothing was written."},
	{"currency_mismatch", 422, "Another currency was paid",
		"The order's currency is another. The money that came is kept as an unapplied payment, to be refunded or voided."},
	{"amount_mismatch", 422, "Another amount was paid",
		"The order's amount is another. The money that came is kept as an unapplied payment, to be refunded or voided."},
	{"refund_exceeds_paid", 422, "The refund is too large", "It is more than what is left of the payment. Nothing was written."},
	{"rate_limited", 429, "The merchant is over its rate",
		"The merchant makes more calls than its rate allows. Nothing was written. Repeat the same request after Retry-After, and send fewer at once."},
	{"internal", 500, "An internal error", "Whether anything was written isn't known. Repeating the same request is safe and settles it."},
	{"overloaded", 503, "Too busy", "Nothing was written. Repeat the same request after Retry-After."},
	{"shard_unavailable", 503, "A part of the data is away", "Nothing was written. Repeat the same request after Retry-After."},
	{"draining", 503, "This process is ending", "Nothing was written. Repeat the same request after Retry-After; another process will take it."},
	{"outcome_unknown", 504, "The outcome is unknown",
		"The write may or may not have happened. Repeating the same request is safe and settles it."},
}

// String returns the code as clients see it.
func (c Code) String() string { return table[c].name }

// Status returns the code's HTTP status.
func (c Code) Status() int { return table[c].status }

// Retryable reports whether the same request may succeed later.
func (c Code) Retryable() bool {
	switch c.Status() {
	case 408, 429, 500, 503, 504:
		return true
	}
	return false
}

// RetryAfter returns the least and the most seconds of the code's Retry-After, 0 when it
// has none. The caller picks between them at random, so that clients refused
// together don't come back together.
func (c Code) RetryAfter() (least, most int) {
	switch c {
	case RateLimited, Overloaded, Draining:
		return 1, 3
	case ShardUnavailable:
		return 2, 6
	}
	return 0, 0
}

// A Fault says what is wrong with a field.
type Fault string

// The faults.
const (
	Required     Fault = "required"
	Unknown      Fault = "unknown"
	Duplicate    Fault = "duplicate"
	WrongType    Fault = "wrong_type"
	OutOfRange   Fault = "out_of_range"
	TooShort     Fault = "too_short"
	TooLong      Fault = "too_long"
	BadFormat    Fault = "bad_format"
	BadCharacter Fault = "bad_character"
	Unsupported  Fault = "unsupported"
)

// A Shed says why work was refused under load.
type Shed string

// The reasons that exist so far.
const (
	Bytes     Shed = "bytes"
	QueueFull Shed = "queue_full"
	QueueWait Shed = "queue_wait"
	Database  Shed = "database"
)
