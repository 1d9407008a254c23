package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/mirror"
)

// instant answers every create at once.
type instant struct {
	Orders
	err error
}

func (o instant) Create(context.Context, ordersvc.New) (ordersvc.Created, error) {
	return ordersvc.Created{Order: benchOrder}, o.err
}

func (o instant) Get(context.Context, idgen.ID) (schema.Order, error) { return benchOrder, o.err }

type nowhere struct{ mirror.Reader }

// discard is a ResponseWriter without a connection.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// BenchmarkServe is a whole call but for net/http and the stores.
func BenchmarkServe(b *testing.B) {
	for _, bc := range []struct {
		name, method, path, body string
		err                      error
	}{
		{"create", "POST", "/v1/orders", body("metadata", `{"sku":"lm2-64"}`), nil},
		{"get", "GET", "/v1/orders/15770253150322220879872", "", nil},
		{"refused", "POST", "/v1/orders", body("metadata", `{"sku":"lm2-64"}`), lane.ErrFull},
		{"unmatched", "GET", "/nowhere", "", nil},
	} {
		b.Run(bc.name, func(b *testing.B) {
			api, err := New(Config{Orders: instant{err: bc.err}, Mirror: nowhere{}, Conflicts: conflict.NewMemory(1), Keys: devKeys(), Logger: slog.New(slog.NewJSONHandler(io.Discard, nil))})
			if err != nil {
				b.Fatal(err)
			}
			in := strings.NewReader(bc.body)
			r, err := http.NewRequest(bc.method, "http://localhost"+bc.path, in)
			if err != nil {
				b.Fatal(err)
			}
			r.RequestURI = bc.path
			r.Header["Content-Type"] = typeJSON
			r.Header["Authorization"] = []string{"Bearer dev-app"}
			r.ContentLength = int64(len(bc.body))
			w := discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				in.Reset(bc.body)
				clear(w.header)
				api.ServeHTTP(w, r)
			}
		})
	}
}
