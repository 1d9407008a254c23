package boot

import (
	"net/http"
	"net/http/pprof"
	"runtime"
	"strings"
	"time"
)

// How much of waiting and of lock contention is sampled while profiles are served. It
// costs a few percent of CPU.
const (
	blockRate     = int(time.Millisecond) // one sample for each ms that somebody waited
	mutexFraction = 100                   // one of so many contentions
)

// withProfiles puts Go's profiles, for peers on this machine alone, before a handler of
// the ops port: /debug/pprof/ is the list. To anybody else they aren't there.
func withProfiles(ops http.Handler) http.Handler {
	runtime.SetBlockProfileRate(blockRate)
	runtime.SetMutexProfileFraction(mutexFraction)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index) // each profile by its name too
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A body is for ops to refuse, which knows how.
		if strings.HasPrefix(r.URL.Path, "/debug/pprof/") && r.ContentLength == 0 && Loopback(r.RemoteAddr) {
			mux.ServeHTTP(w, r)
			return
		}
		ops.ServeHTTP(w, r)
	})
}
