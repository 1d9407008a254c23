package httpapi

import (
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Limits of one HTTP/2 connection, which carries many requests at once. Headers are
// bounded as in HTTP/1, by MaxHeaderBytes; bodies of API have their own bounds, each; and
// whoever counts requests counts streams.
const (
	// streamsMax is how many requests a connection carries at once: the least that the
	// standard recommends, since a proxy may put all its clients' requests on one.
	streamsMax = 100
	// Of bodies that nobody reads, that many bytes are taken from a connection, and from
	// one of its requests.
	connectionWindow = 1 << 20
	streamWindow     = 256 << 10
	// frameMax is the largest frame; a larger one saves nothing and is held whole.
	frameMax = 16 << 10
	// silenceMax is after which silence a connection is asked whether it lives.
	silenceMax = 30 * time.Second
)

// NewServer returns a server for h that has a limit for everything a client can draw
// out or pile up. The caller listens, serves, and shuts it down; an API as h is told
// to Drain first. With a TLSConfig it speaks HTTP/2 too; without it doesn't.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		// A body that is awaited has its own time, in API, in place of this one. This is
		// for what net/http refuses without asking anybody (417), and then awaits the body
		// of; and for handlers that don't know that there is one.
		ReadTimeout: 5 * time.Second,
		// From the headers' end. An answer of API has a time of its own to be received.
		WriteTimeout:   15 * time.Second,
		IdleTimeout:    75 * time.Second, // more than the 60 s that front proxies keep theirs
		MaxHeaderBytes: 32 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          streamsMax,
			MaxReadFrameSize:              frameMax,
			MaxReceiveBufferPerConnection: connectionWindow,
			MaxReceiveBufferPerStream:     streamWindow,
			SendPingTimeout:               silenceMax,
			PingTimeout:                   15 * time.Second,
			// One that takes nothing holds a connection no longer than in HTTP/1.
			WriteByteTimeout: sendTime,
		},
		// OPTIONS * is a path that there isn't, like any other.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     stdlog.New(newServerLog(log), "", 0),
	}
}

// withoutBodies refuses requests that have a body, for an h that takes none: net/http
// would await it before it ends the connection.
func withoutBodies(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			h.ServeHTTP(w, r)
			return
		}
		w.Header()["Connection"] = closing
		http.Error(w, "no call here takes a body", http.StatusBadRequest)
		linger(w, r, lingerTime/10)
	})
}

// localHost reports whether the Host of a request is a loopback name of this machine.
func localHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
