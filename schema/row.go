// Package schema is what is stored: the tables and their migrations, their columns,
// and the types of their rows. It holds no rule about what a row may say; that is
// package ordersvc's.
//
// A type of a row is one for both clusters. Texts are stored in binary collations, so
// that what differs by a letter's case differs as a key; times are UTC and cut to ms.
package schema

import (
	"fmt"
	"time"

	"github.com/octopay/octopay/idgen"
)

// Millis is a time as it is stored: ms since 1970, UTC. 0 is "none" in columns that
// can be NULL.
type Millis int64

// MillisOf cuts t to ms.
func MillisOf(t time.Time) Millis { return Millis(t.UnixMilli()) }

// Time returns m in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// layoutSQL is how a DATETIME(3) reads as text.
const layoutSQL = "2006-01-02 15:04:05.000"

// SQL returns m as the text of a DATETIME(3).
func (m Millis) SQL() string { return m.Time().Format(layoutSQL) }

// ParseMillis reads the text of a DATETIME(3).
func ParseMillis(s string) (Millis, error) {
	t, err := time.ParseInLocation(layoutSQL, s, time.UTC)
	if err != nil {
		return 0, fmt.Errorf("schema: not a DATETIME(3)")
	}
	return MillisOf(t), nil
}

// A Status is the state of an order. The number is its place in the column's ENUM.
type Status uint8

// The states; 0 is none.
const (
	Created Status = iota + 1
	Paid
	PartiallyRefunded
	Refunded
	Closed
)

var statusNames = [...]string{"", "created", "paid", "partially_refunded", "refunded", "closed"}

func (s Status) String() string { return name(statusNames[:], s) }

// ParseStatus reads the name of a state.
func ParseStatus(s string) (Status, error) { return parse[Status](statusNames[:], "status", s) }

// A CloseReason says who closed an order. The number is its place in the column's
// ENUM; 0 is NULL: not closed.
type CloseReason uint8

// The reasons.
const (
	ByMerchant CloseReason = iota + 1
	ByBuyer
	Expired
)

var closeReasonNames = [...]string{"", "merchant", "buyer", "expired"}

func (r CloseReason) String() string { return name(closeReasonNames[:], r) }

// ParseCloseReason reads the name of a reason.
func ParseCloseReason(s string) (CloseReason, error) {
	return parse[CloseReason](closeReasonNames[:], "close_reason", s)
}

// A Kind says what a journal entry records. The number is its place in the column's
// ENUM. KindCreated is never stored: an order's own columns are its first entry.
type Kind uint8

// The kinds; KindCreated is 0.
const (
	KindCreated Kind = iota
	KindPaid
	KindClosed
	KindRefunded
	KindRefundSucceeded
	KindRefundFailed
	KindUnappliedPayment
	KindUnappliedRefunded
	KindUnappliedVoided
)

var kindNames = [...]string{"created", "paid", "closed", "refunded", "refund_succeeded", "refund_failed",
	"unapplied_payment", "unapplied_refunded", "unapplied_voided"}

func (k Kind) String() string { return name(kindNames[:], k) }

// ParseKind reads the name of a kind that can be stored.
func ParseKind(s string) (Kind, error) { return parse[Kind](kindNames[:], "kind", s) }

func name[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("unknown(%d)", uint8(v))
}

// parse finds s among names from 1 on: 0 stands for none.
func parse[T ~uint8](names []string, column, s string) (T, error) {
	for i := 1; i < len(names); i++ {
		if names[i] == s {
			return T(i), nil
		}
	}
	return 0, fmt.Errorf("schema: unknown %s", column)
}

// An Order is one row of order_t, the same in both clusters. Two rows are equal
// when they are ==. Text that is "" and times that are 0 are NULL where the column
// can be NULL.
type Order struct {
	ID             int64 // the snowflake
	UID            int64
	BID            int64
	OutTradeNo     string
	Amount         int64 // minor units of Currency
	Currency       string
	Subject        string
	Metadata       string // JSON object, names sorted, no white space; "{}" when empty
	Status         Status
	Ver            int64 // from 1
	PaidAmount     int64
	RefundedAmount int64
	Channel        string // NULL until paid
	ChannelTradeNo string // NULL until paid
	Unapplied      int64  // number of unapplied payments ever recorded
	CloseReason    CloseReason
	CreatedBy      string // actor of the creation: app, merchant
	RequestID      string // of the creation
	ExpiresAt      Millis
	UpdatedAt      Millis
	PaidAt         Millis // NULL until paid
	ClosedAt       Millis // NULL until closed
}

// OrderID returns the whole order id.
func (o Order) OrderID() idgen.ID { return idgen.Make(o.UID, o.ID) }

// CreatedAt is the id's time.
func (o Order) CreatedAt() Millis { return MillisOf(idgen.SnowflakeTime(o.ID)) }

// An Entry is one row of journal_t, the same in both clusters: what happened to an
// order, and the version that made.
type Entry struct {
	OrderID    int64 // the order's snowflake
	Seq        int64 // the order's ver after the operation, from 2
	UID        int64
	BID        int64
	Op         string // identity of the operation; unique within the order
	Kind       Kind
	Amount     int64  // 0 where the kind has none
	Currency   string // "" is NULL
	From, To   Status
	Ref        string // "" is NULL; what the outside calls it, e.g. "wechat:4200…"
	Reason     string // "" is NULL
	Actor      string
	KeyID      string // "" is NULL
	RequestID  string
	RecordedAt Millis
	PaidAt     Millis // NULL unless Kind is KindPaid; the channel's word

	ChannelRefundNo string // NULL unless it is a refund's result that has one
}
