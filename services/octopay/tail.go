package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/command"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/syncer/mirrorpb"
	"github.com/octopay/octopay/syncer/stream"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

type tailCmd struct {
	BID       int64         `name:"bid" placeholder:"N" help:"Only rows of this merchant."`
	UID       int64         `name:"uid" placeholder:"N" help:"Only rows of this buyer."`
	Order     string        `name:"order" placeholder:"ID" help:"Only rows of this order."`
	FromStart bool          `name:"from-start" xor:"begin" help:"Begin with the oldest that is kept, not with what comes now."`
	From      uint64        `name:"from" xor:"begin" placeholder:"SEQUENCE" help:"Begin with this message."`
	Since     time.Duration `name:"since" xor:"begin" placeholder:"10m" help:"Begin with what is no older than this."`
	Marks     bool          `name:"marks" help:"Marks too: up to when a server's rows are complete."`
	JSON      bool          `name:"json" help:"One JSON object a line, with every column."`
	Limit     int           `name:"limit" placeholder:"N" help:"End after so many lines; otherwise at Ctrl-C."`
	End       bool          `name:"end" help:"End with what is there now; it takes a beginning."`
}

const (
	tailAnswer  = 5 * time.Second        // NATS has so long for an answer
	tailSilence = 500 * time.Millisecond // how often a silent stream is asked whether it is there
	tailRetry   = time.Second            // between two tries to read on
)

// Validate implements kong's: what it returns is an error of the command line.
func (c tailCmd) Validate() error {
	switch {
	case c.BID < 0 || c.UID < 0:
		return errors.New("--bid and --uid are from 1")
	case c.Since < 0:
		return errors.New("--since must be above 0")
	case c.End && !c.FromStart && c.From == 0 && c.Since == 0:
		return errors.New("--end takes --from-start, --from or --since: what comes now has no end")
	case c.Limit < 0:
		return errors.New("--limit must be at least 1")
	}
	if c.Order != "" {
		if _, err := idgen.Parse(c.Order); err != nil {
			return fmt.Errorf("--order: %w; see octopay id", err)
		}
	}
	return nil
}

// errEnough ends a tail that has written all its lines.
var errEnough = errors.New("enough")

// Run writes what comes through the mirror's stream. It only reads.
func (c tailCmd) Run(ctx context.Context, s boot.Shared, to console) error {
	m, err := mapFile(s)
	if err != nil {
		return err
	}
	if s.NATSURL == "" {
		return command.Usage("config: nats_url (%sNATS_URL) is not set", boot.Prefix)
	}
	nc, err := s.NATS("octopay tail", nats.RetryOnFailedConnect(false))
	if err != nil {
		return err
	}
	defer nc.Close()
	st, err := stream.New(nc, m.Prefix(), stream.Config{})
	if err != nil {
		return err
	}
	asked, cancel := context.WithTimeout(ctx, tailAnswer)
	info, err := st.Info(asked)
	var first uint64
	if err == nil {
		first, err = c.begin(asked, st, info)
	}
	cancel()
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("there is no stream %s: the first syncerd makes it", st.Name())
	}
	if err != nil {
		return err
	}
	if c.From > 0 && c.From < info.First {
		fmt.Fprintf(to.err, "octopay: message %d is kept no more; beginning with the first, %d\n", c.From, info.First)
	}
	t := &tailer{tailCmd: c, st: st, out: to.out, incarnation: info.Incarnation, next: first, last: info.Last}
	for {
		err := t.follow(ctx)
		switch {
		case ctx.Err() != nil, errors.Is(err, errEnough):
			return nil
		case !errors.Is(err, stream.ErrInterrupted) && !errors.Is(err, jetstream.ErrStreamNotFound) && nc.IsConnected():
			return err
		}
		fmt.Fprintf(to.err, "octopay: NATS was away; going on with message %d\n", t.next)
		if !t.again(ctx, to) {
			return nil
		}
	}
}

// begin returns the first sequence to be read.
func (c tailCmd) begin(ctx context.Context, st *stream.Stream, info stream.Info) (uint64, error) {
	switch {
	case c.FromStart:
		return info.First, nil
	case c.From > info.Last+1:
		return 0, fmt.Errorf("there is no message %d yet: the last is %d", c.From, info.Last)
	case c.From > 0:
		return max(c.From, info.First), nil
	case c.Since > 0:
		return st.FirstSince(ctx, time.Now().Add(-c.Since))
	}
	return info.Last + 1, nil
}

// A tailer is a tail under way.
type tailer struct {
	tailCmd
	st          *stream.Stream
	out         io.Writer
	incarnation string
	next        uint64 // sequence
	last        uint64 // that was there at the beginning
	lines       int
}

// again waits until the stream is there again, and finds the place in it; false when ctx
// ended.
func (t *tailer) again(ctx context.Context, to console) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(tailRetry):
		}
		asked, cancel := context.WithTimeout(ctx, tailAnswer)
		info, err := t.st.Info(asked)
		cancel()
		if err != nil {
			continue
		}
		if info.Incarnation != t.incarnation || info.Last+1 < t.next {
			fmt.Fprintf(to.err, "octopay: the stream is another one, or has lost messages; going on with its first, %d\n", info.First)
			t.incarnation, t.next, t.last = info.Incarnation, info.First, info.Last
		}
		return true
	}
}

// follow writes what comes until an error.
func (t *tailer) follow(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, tailAnswer)
	defer cancel()
	var in stream.Tail
	var err error
	if t.BID > 0 {
		in, err = t.st.TailGroup(asked, mirrorpb.Group(t.BID), t.next)
	} else {
		in, err = t.st.Tail(asked, t.next)
	}
	if err != nil {
		return err
	}
	defer in.Close()
	if t.End && in.Empty() {
		return errEnough
	}
	for {
		m, err := in.Next(ctx, tailSilence)
		if errors.Is(err, stream.ErrSilent) {
			if err = in.Check(); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		if t.End && m.Seq > t.last {
			return errEnough
		}
		if err := t.message(m); err != nil {
			return err
		}
		t.next = m.Seq + 1
		if t.End && (!m.More || t.next > t.last) {
			return errEnough
		}
	}
}

// A line is one row, or one mark, of the stream.
type line struct {
	Seq      uint64          `json:"seq"`
	StoredAt string          `json:"stored_at"` // by the clock of NATS
	Kind     string          `json:"kind"`      // order, entry, broken, mark, undecodable
	Server   string          `json:"server,omitempty"`
	Subject  string          `json:"subject,omitempty"`
	Row      json.RawMessage `json:"row,omitempty"`   // as mirror.proto has it
	Fault    string          `json:"fault,omitempty"` // why nobody applies it
	text     string
}

func (t *tailer) message(m stream.Message) error {
	l := line{Seq: m.Seq, StoredAt: time.Unix(0, m.StoredAt).UTC().Format("2006-01-02T15:04:05.000Z")}
	if m.Mark != nil {
		return t.mark(l, m)
	}
	var rows mirrorpb.Rows
	if err := proto.Unmarshal(m.Data, &rows); err != nil {
		l.Kind, l.Subject, l.Fault = "undecodable", m.Subject, fmt.Sprintf("%d bytes that are no rows", len(m.Data))
		l.text = plain(m.Subject)
		return t.write(l)
	}
	l.Server = rows.GetServer()
	for _, row := range rows.GetRows() {
		l.Fault = ""
		var err error
		switch {
		case row.GetOrder() != nil:
			err = t.order(l, row.GetOrder())
		case row.GetEntry() != nil:
			err = t.entry(l, row.GetEntry())
		case row.GetBroken() != nil:
			err = t.broken(l, row.GetBroken())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wanted reports whether a row of this order, buyer and merchant is to be shown.
func (t *tailer) wanted(order string, uid, bid int64) bool {
	return (t.Order == "" || t.Order == order) && (t.UID == 0 || t.UID == uid) && (t.BID == 0 || t.BID == bid)
}

func (t *tailer) order(l line, o *mirrorpb.Order) error {
	if !t.wanted(o.GetOrderId(), o.GetUid(), o.GetBid()) {
		return nil
	}
	l.Kind = "order"
	l.text = fmt.Sprintf("%s  ver %d  %s  %d %s  paid %d  refunded %d  uid %d  bid %d  %s", plain(o.GetOrderId()), o.GetVer(), name(o.GetStatus()),
		o.GetAmount(), plain(o.GetCurrency()), o.GetPaidAmount(), o.GetRefundedAmount(), o.GetUid(), o.GetBid(), plain(o.GetOutTradeNo()))
	if _, err := o.Row(); err != nil {
		l.Fault = err.Error()
	}
	return t.row(l, o)
}

func (t *tailer) entry(l line, e *mirrorpb.Entry) error {
	if !t.wanted(e.GetOrderId(), e.GetUid(), e.GetBid()) {
		return nil
	}
	l.Kind = "entry"
	l.text = fmt.Sprintf("%s  seq %d  %s  %s to %s  %d %s  uid %d  bid %d  %s", plain(e.GetOrderId()), e.GetSeq(), plain(e.GetOp()), name(e.GetFrom()), name(e.GetTo()),
		e.GetAmount(), plain(e.GetCurrency()), e.GetUid(), e.GetBid(), plain(e.GetActor()))
	if _, err := e.Row(); err != nil {
		l.Fault = err.Error()
	}
	return t.row(l, e)
}

// broken shows a row that the collector couldn't understand; whose it is may be unknown.
func (t *tailer) broken(l line, b *mirrorpb.Broken) error {
	if t.Order != "" || t.UID > 0 || t.BID > 0 && b.GetBid() != 0 && b.GetBid() != t.BID {
		return nil
	}
	l.Kind, l.Fault = "broken", b.GetReason()
	l.text = fmt.Sprintf("%s  bid %d", plain(b.GetTable()), b.GetBid())
	return t.row(l, b)
}

func (t *tailer) mark(l line, m stream.Message) error {
	if !t.Marks {
		return nil
	}
	l.Kind, l.Server, l.Subject = "mark", m.Mark.Server, m.Subject
	l.text = fmt.Sprintf("at %s  position %s", m.Mark.At.Time().Format(timeLayout), m.Mark.Position)
	switch {
	case m.Mark.Server == "":
		l.Fault = "not a mark of this subject"
	case m.Incarnation != t.incarnation:
		l.Fault = "of another incarnation of the stream"
	}
	return t.row(l, &mirrorpb.Mark{Server: m.Mark.Server, Position: m.Mark.Position.String(), AtMs: int64(m.Mark.At), Incarnation: m.Incarnation})
}

func (t *tailer) row(l line, row proto.Message) (err error) {
	if t.JSON {
		if l.Row, err = (protojson.MarshalOptions{UseProtoNames: true}).Marshal(row); err != nil {
			l.Fault = "not writable as JSON" // text that isn't UTF-8
		}
	}
	return t.write(l)
}

// write writes a line, and returns errEnough after the last.
func (t *tailer) write(l line) (err error) {
	if t.JSON {
		var text []byte
		if text, err = json.Marshal(l); err == nil {
			_, err = fmt.Fprintf(t.out, "%s\n", text)
		}
	} else {
		text := fmt.Sprintf("%s  %d  %-6s  %s", l.StoredAt, l.Seq, l.Kind, l.text)
		if l.Server != "" {
			text += "  from " + plain(l.Server)
		}
		if l.Fault != "" {
			text += "  FAULT: " + plain(l.Fault)
		}
		_, err = fmt.Fprintln(t.out, text)
	}
	if err != nil {
		return err
	}
	if t.lines++; t.lines == t.Limit {
		return errEnough
	}
	return nil
}

// name is how a state is called in the tables.
func name(s mirrorpb.Status) string {
	if s < mirrorpb.Status_STATUS_CREATED || s > mirrorpb.Status_STATUS_CLOSED {
		return s.String()
	}
	return schema.Status(s).String()
}

// plain is a text of others as it can be shown on a terminal.
func plain(s string) string {
	quoted := strconv.Quote(s)
	if quoted == `"`+s+`"` && !strings.ContainsAny(s, "\"\\") && s != "" {
		return s
	}
	return quoted
}
