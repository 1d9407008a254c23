package schema

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"time"
)

// OrderColumns are the columns of order_t, in the order of Order.Values and
// Order.Fields.
var OrderColumns = []string{
	"id", "uid", "bid", "out_trade_no", "amount", "currency", "subject", "metadata",
	"status", "ver", "paid_amount", "refunded_amount", "channel", "channel_trade_no",
	"unapplied_payments", "close_reason", "created_by", "request_id",
	"expires_at", "updated_at", "paid_at", "closed_at",
}

// EntryColumns are the columns of journal_t, in the order of Entry.Values and
// Entry.Fields.
var EntryColumns = []string{
	"order_id", "seq", "uid", "bid", "op", "kind", "amount", "currency",
	"from_status", "to_status", "ref", "reason", "actor", "key_id", "request_id", "recorded_at",
	"paid_at", "channel_refund_no",
}

// List joins columns for use in SQL.
func List(columns []string) string { return strings.Join(columns, ",") }

// Values returns what to store, in the order of OrderColumns.
func (o *Order) Values() []any {
	return []any{
		o.ID, o.UID, o.BID, o.OutTradeNo, o.Amount, o.Currency, o.Subject, o.Metadata,
		o.Status, o.Ver, o.PaidAmount, o.RefundedAmount, null(o.Channel), null(o.ChannelTradeNo),
		o.Unapplied, o.CloseReason, o.CreatedBy, o.RequestID,
		o.ExpiresAt, o.UpdatedAt, o.PaidAt, o.ClosedAt,
	}
}

// Fields returns where to scan a row to, in the order of OrderColumns.
func (o *Order) Fields() []any {
	return []any{
		&o.ID, &o.UID, &o.BID, &o.OutTradeNo, &o.Amount, &o.Currency, &o.Subject, &o.Metadata,
		&o.Status, &o.Ver, &o.PaidAmount, &o.RefundedAmount, (*nullable)(&o.Channel), (*nullable)(&o.ChannelTradeNo),
		&o.Unapplied, &o.CloseReason, &o.CreatedBy, &o.RequestID,
		&o.ExpiresAt, &o.UpdatedAt, &o.PaidAt, &o.ClosedAt,
	}
}

// Values returns what to store, in the order of EntryColumns.
func (e *Entry) Values() []any {
	return []any{
		e.OrderID, e.Seq, e.UID, e.BID, e.Op, e.Kind, e.Amount, null(e.Currency),
		e.From, e.To, null(e.Ref), null(e.Reason), e.Actor, null(e.KeyID), e.RequestID, e.RecordedAt,
		e.PaidAt, null(e.ChannelRefundNo),
	}
}

// Fields returns where to scan a row to, in the order of EntryColumns.
func (e *Entry) Fields() []any {
	return []any{
		&e.OrderID, &e.Seq, &e.UID, &e.BID, &e.Op, &e.Kind, &e.Amount, (*nullable)(&e.Currency),
		&e.From, &e.To, (*nullable)(&e.Ref), (*nullable)(&e.Reason), &e.Actor, (*nullable)(&e.KeyID), &e.RequestID, &e.RecordedAt,
		&e.PaidAt, (*nullable)(&e.ChannelRefundNo),
	}
}

// Value stores m as DATETIME(3), 0 as NULL.
func (m Millis) Value() (driver.Value, error) {
	if m == 0 {
		return nil, nil
	}
	return m.SQL(), nil
}

// Scan reads a DATETIME(3), as a time or as text; NULL is 0.
func (m *Millis) Scan(src any) (err error) {
	switch v := src.(type) {
	case nil:
		*m = 0
	case time.Time:
		*m = MillisOf(v)
	case []byte:
		*m, err = ParseMillis(string(v))
	case string:
		*m, err = ParseMillis(v)
	default:
		err = fmt.Errorf("schema: a DATETIME cannot come as %T", src)
	}
	return err
}

// Value stores the name of s.
func (s Status) Value() (driver.Value, error) { return s.String(), nil }

// Scan reads the name of a state.
func (s *Status) Scan(src any) (err error) { return scanName(s, src, ParseStatus) }

// Value stores the name of r, 0 as NULL.
func (r CloseReason) Value() (driver.Value, error) {
	if r == 0 {
		return nil, nil
	}
	return r.String(), nil
}

// Scan reads the name of a reason; NULL is 0.
func (r *CloseReason) Scan(src any) (err error) { return scanName(r, src, ParseCloseReason) }

// Value stores the name of k.
func (k Kind) Value() (driver.Value, error) { return k.String(), nil }

// Scan reads the name of a kind.
func (k *Kind) Scan(src any) (err error) { return scanName(k, src, ParseKind) }

func scanName[T ~uint8](dst *T, src any, parse func(string) (T, error)) (err error) {
	switch v := src.(type) {
	case nil:
		*dst = 0
	case []byte:
		*dst, err = parse(string(v))
	case string:
		*dst, err = parse(v)
	default:
		err = fmt.Errorf("schema: an ENUM cannot come as %T", src)
	}
	return err
}

func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// A nullable is text that is NULL when it is "".
type nullable string

func (n *nullable) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*n = ""
	case []byte:
		*n = nullable(v)
	case string:
		*n = nullable(v)
	default:
		return fmt.Errorf("schema: text cannot come as %T", src)
	}
	return nil
}
