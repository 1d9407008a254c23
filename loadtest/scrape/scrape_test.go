package scrape

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const text = `# HELP a_seconds A.
# TYPE a_seconds gauge
a_seconds{server="x}y",database="d 1"} 1.5
a_seconds{server="y"} 4 1700000000
a_seconds_total 100
b -2
b{x="y"} NaN x
c 1e+03
`

func TestValuesAreOfTheirMetricAlone(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	defer srv.Close()
	m, err := Get(t.Context(), srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	if sum := m.Sum("a_seconds"); sum != 5.5 {
		t.Errorf("sum %g", sum)
	}
	if largest, ok := m.Max("a_seconds"); !ok || largest != 4 {
		t.Errorf("max %g, %t", largest, ok)
	}
	if sum := m.Sum("c"); sum != 1000 {
		t.Errorf("sum %g", sum)
	}
	if largest, ok := m.Max("absent"); ok || m.Sum("absent") != 0 {
		t.Errorf("absent is %g", largest)
	}
	if _, err := Get(t.Context(), srv.URL+"/no"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v", err)
	}
}
