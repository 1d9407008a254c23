package boot_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/octopay/octopay/services/internal/boot"
)

// ops runs the ops part of a program and returns its base URL.
func ops(t *testing.T, s boot.Shared) string {
	t.Helper()
	part, addr, err := boot.NewProgram(slog.New(slog.DiscardHandler), s).Ops("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- part.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + addr.String()
}

func fetch(t *testing.T, method, url, body string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, text
}

func TestProfilesAreServedBySettingAlone(t *testing.T) {
	without, with := ops(t, boot.Shared{}), ops(t, boot.Shared{Pprof: true})
	for _, path := range []string{"", "heap", "allocs", "block", "mutex", "goroutine", "profile?seconds=1"} {
		if status, _ := fetch(t, "GET", without+"/debug/pprof/"+path, ""); status != http.StatusNotFound {
			t.Errorf("without the setting %q is answered %d", path, status)
		}
		status, body := fetch(t, "GET", with+"/debug/pprof/"+path, "")
		// A profile is gzip.
		if status != http.StatusOK || path != "" && !bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
			t.Errorf("with the setting %q is answered %d, %.20q", path, status, body)
		}
	}
	if status, _ := fetch(t, "GET", with+"/healthz", ""); status != http.StatusOK {
		t.Errorf("health: %d", status)
	}
	for _, c := range [][2]string{{"POST", ""}, {"POST", "x"}, {"GET", "x"}} {
		if status, _ := fetch(t, c[0], with+"/debug/pprof/heap", c[1]); status < 400 {
			t.Errorf("%s with the body %q: %d", c[0], c[1], status)
		}
	}
}

func TestProfilesAreForPeersOfThisMachine(t *testing.T) {
	h := boot.WithProfiles(http.NotFoundHandler())
	for peer, want := range map[string]int{
		"127.0.0.1:4000": http.StatusOK, "[::1]:4000": http.StatusOK, "127.9.9.9:1": http.StatusOK, "[::ffff:127.0.0.1]:1": http.StatusOK,
		"10.0.0.1:4000": http.StatusNotFound, "[2001:db8::1]:4000": http.StatusNotFound, "": http.StatusNotFound, "@": http.StatusNotFound,
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/debug/pprof/heap", nil)
		r.RemoteAddr = peer
		r.Header.Set("X-Forwarded-For", "127.0.0.1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("from %q: %d, want %d", peer, w.Code, want)
		}
	}
}
