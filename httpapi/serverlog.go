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
// writes the first without the address, and the next not before a while, with how many
// there were. It is an io.Writer of whole lines.
type serverLog struct {
	log *slog.Logger
	now func() time.Time

	mu         sync.Mutex
	handshakes kindOfLine // of TLS; what scanners and health checks of ports make
	others     kindOfLine // such as no more files to accept a connection
}

// A kindOfLine is what was not written of a kind.
type kindOfLine struct {
	count int64
	next  time.Time // not written before
}

func newServerLog(log *slog.Logger) *serverLog { return &serverLog{log: log, now: time.Now} }

const handshakeError = "http: TLS handshake error"

// address finds the address of a client in a line, with its port.
var address = regexp.MustCompile(`(\d{1,3}(\.\d{1,3}){3}|\[[0-9A-Za-z:.%]+\]):\d+`)

// Write implements io.Writer.
func (l *serverLog) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	kind, level := &l.others, slog.LevelWarn
	if strings.HasPrefix(text, handshakeError) {
		kind, level = &l.handshakes, slog.LevelInfo
	}
	l.mu.Lock()
	now := l.now()
	kind.count++
	n := kind.count
	write := !now.Before(kind.next)
	if write {
		kind.count, kind.next = 0, now.Add(serverLogEvery)
	}
	l.mu.Unlock()
	if write {
		text = address.ReplaceAllString(text, "…")
		l.log.LogAttrs(context.Background(), level, "connection", slog.String("error", text[:min(len(text), causeMax)]), slog.Int64("count", n))
	}
	return len(p), nil
}
