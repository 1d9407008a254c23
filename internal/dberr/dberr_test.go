package dberr

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
)

func said(n uint16) error {
	return &mysql.MySQLError{Number: n, Message: "Duplicate entry 'secret'"}
}

func TestOf(t *testing.T) {
	netErr := func(op string, err error) error {
		return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, err)}
	}
	for _, c := range []struct {
		name string
		err  error
		want Class
	}{
		{"nothing went wrong", nil, None},

		{"the driver sent nothing", driver.ErrBadConn, NotSent},
		{"the connection was given back before", sql.ErrConnDone, NotSent},
		{"the answer before was not read to its end", mysql.ErrBusyBuffer, NotSent},
		{"nobody listens", netErr("dial", syscall.ECONNREFUSED), NotSent},
		{"nobody answers the dial", &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}, NotSent},
		{"no TLS there", mysql.ErrNoTLS, NotSent},
		{"a certificate that is not trusted", &tls.CertificateVerificationError{Err: errors.New("x509")}, NotSent},
		{"no TLS though it was begun", tls.RecordHeaderError{Msg: "x"}, NotSent},
		{"an unknown way to log in", mysql.ErrUnknownPlugin, NotSent},
		{"too many connections", said(1040), NotSent},
		{"wrong password", said(1045), NotSent},
		{"host blocked", said(1129), NotSent},
		{"host not allowed", said(1130), NotSent},
		{"too many connections of the user", said(1203), NotSent},

		{"duplicate key", said(1062), Duplicate},

		{"lock wait timeout", said(1205), Retryable},
		{"deadlock", said(1213), Retryable},
		{"record changed since the last read", said(1020), Retryable},

		{"the epoch guard", said(1242), Stale},

		{"--read-only", said(1290), ReadOnly},
		{"read-only transaction", said(1792), ReadOnly},
		{"read-only mode", said(1836), ReadOnly},
		{"the disk is full", said(1021), ReadOnly},
		{"no room for a table", said(1114), ReadOnly},

		{"no such table", said(1146), Missing},
		{"no such database", said(1049), Missing},
		{"a database that isn't ours any more", said(1044), Missing},
		{"a table that isn't ours any more", said(1142), Missing},
		{"a table without its file", said(1932), Missing},

		{"the server finds the packet too big", said(1153), TooBig},
		{"the driver finds the packet too big", mysql.ErrPktTooLarge, TooBig},

		{"value too long", said(1406), Refused},
		{"a SIGNAL of a trigger", said(1644), Refused},
		{"check constraint", said(4025), Refused},

		{"the connection broke in the answer", mysql.ErrInvalidConn, Unknown},
		{"our deadline", context.DeadlineExceeded, Unknown},
		{"somebody cancelled", context.Canceled, Unknown},
		{"end of stream", io.EOF, Unknown},
		{"end of stream in a packet", io.ErrUnexpectedEOF, Unknown},
		{"reset while reading", netErr("read", syscall.ECONNRESET), Unknown},
		{"reset while writing", netErr("write", syscall.EPIPE), Unknown},
		{"packets out of step", mysql.ErrPktSync, Unknown},
		{"a broken packet", mysql.ErrMalformPkt, Unknown},
		{"the server shuts down", said(1053), Unknown},
		{"the query was interrupted", said(1317), Unknown},
		{"the connection was killed", said(1927), Unknown},
		{"max_statement_time", said(1969), Unknown},
		{"the binlog's disk is full", said(1026), Unknown},
		{"something new", errors.New("novelty"), Unknown},

		{"its sender knows better", As(Unknown, said(1062)), Unknown},
		{"its sender knows that nothing was sent", As(NotSent, context.DeadlineExceeded), NotSent},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Of(c.err); got != c.want {
				t.Errorf("bare: %v, want %v", got, c.want)
			}
			if c.err == nil {
				return
			}
			if got := Of(fmt.Errorf("insert: %w", c.err)); got != c.want {
				t.Errorf("wrapped: %v, want %v", got, c.want)
			}
			if got := Of(errors.Join(errors.New("rollback"), c.err)); got != c.want {
				t.Errorf("joined: %v, want %v", got, c.want)
			}
			if got := Of(Clean(c.err)); got != c.want {
				t.Errorf("cleaned: %v, want %v", got, c.want)
			}
		})
	}
}

// Every number is in exactly one class, and only those named above are not refused.
func TestEveryServerErrorHasAClass(t *testing.T) {
	counts := map[Class]int{}
	for n := range 1 << 16 {
		counts[ofNumber(uint16(n))]++
	}
	want := map[Class]int{NotSent: 5, Duplicate: 1, Retryable: 3, Stale: 1, ReadOnly: 5, Missing: 5, TooBig: 1, Unknown: 5, Refused: 1<<16 - 26}
	for c := None; c <= Unknown; c++ {
		if counts[c] != want[c] {
			t.Errorf("%v: %d numbers, want %d", c, counts[c], want[c])
		}
	}
}

// What every class but "refused" is made of has words; so do numbers that an operator
// meets. None of them is the server's text.
func TestTheTextSaysWhatTheNumberMeans(t *testing.T) {
	for n := range 1 << 16 {
		if ofNumber(uint16(n)) != Refused && words[uint16(n)] == "" {
			t.Errorf("server error %d has no words", n)
		}
	}
	for n, w := range words {
		// What stands between quotation marks is cut out of logs.
		if strings.ContainsAny(w, "'\"`") {
			t.Errorf("the words for %d hold a quotation mark", n)
		}
	}
	for n, want := range map[uint16]string{
		1045: "not sent: access denied: the user or the password is wrong (server error 1045)",
		1040: "not sent: too many connections (server error 1040)",
		1049: "missing: no such database (server error 1049)",
		1406: "refused: a value is too long for its column (server error 1406)",
		9999: "refused: server error 9999",
	} {
		if got := Clean(fmt.Errorf("insert: %w", said(n))).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestCleanHidesTheServersText(t *testing.T) {
	err := Clean(fmt.Errorf("insert: %w", said(1062)))
	if s := err.Error(); strings.Contains(s, "secret") || !strings.Contains(s, "1062") {
		t.Errorf("text is %q", s)
	}
	var cause *mysql.MySQLError
	if !errors.As(err, &cause) || cause.Number != 1062 {
		t.Errorf("the cause is lost: %#v", err)
	}
	if Clean(nil) != nil {
		t.Error("an error was made of nothing")
	}
	if s := Clean(driver.ErrBadConn).Error(); !strings.Contains(s, driver.ErrBadConn.Error()) {
		t.Errorf("an error of ours lost its text: %q", s)
	}
	if s := Class(99).String(); s != "class(99)" {
		t.Errorf("a class beyond all prints %q", s)
	}
}
