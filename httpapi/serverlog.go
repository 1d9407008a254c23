package httpapi

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"
)

// serverLogEvery is the least time between two lines of one kind.
const serverLogEvery = 10 * time.Second

// A serverLog takes what net/http says of connections that fail, a line for each. Whoever
// can connect can make any number of those, and they name the client's address. So it
// writes the first without the address, and of those that come within a while the last,
// at its end, with how many there were. It is an io.Writer of whole lines.
type serverLog struct {
	log *slog.Logger

	mu         sync.Mutex
	handshakes kindOfLine // of TLS; what scanners and health checks of ports make
	others     kindOfLine // such as no more files to accept a connection
}

// A kindOfLine is what was not written of a kind.
type kindOfLine struct {
	level   slog.Level
	count   int64
	last    string
	next    time.Time // not written before
	waiting bool      // for next, to be written then
}

func newServerLog(log *slog.Logger) *serverLog {
	return &serverLog{log: log, handshakes: kindOfLine{level: slog.LevelInfo}, others: kindOfLine{level: slog.LevelWarn}}
}

const handshakeError = "http: TLS handshake error"

// address finds the address of a client in a line, with its port.
var address = regexp.MustCompile(`(\d{1,3}(\.\d{1,3}){3}|\[[0-9A-Za-z:.%]+\]):\d+`)

// Write implements io.Writer.
func (l *serverLog) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	kind := &l.others
	if strings.HasPrefix(text, handshakeError) {
		kind = &l.handshakes
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	kind.count++
	kind.last = text
	switch wait := time.Until(kind.next); {
	case kind.waiting:
	case wait <= 0:
		l.write(kind)
	default:
		kind.waiting = true
		time.AfterFunc(wait, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			kind.waiting = false
			l.write(kind)
		})
	}
	return len(p), nil
}

// write writes the line of what was not written of a kind.
func (l *serverLog) write(kind *kindOfLine) {
	text := shortened(address.ReplaceAllString(kind.last, "…"))
	l.log.LogAttrs(context.Background(), kind.level, "connection", slog.String("error", text), slog.Int64("count", kind.count))
	kind.count, kind.last, kind.next = 0, "", time.Now().Add(serverLogEvery)
}
