package e2e_test

import (
	"bufio"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/octopay/octopay/httpapi/hostiletest"
	"github.com/octopay/octopay/httpapi/openapitest"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"golang.org/x/sync/errgroup"
)

// everything is the whole log of a program.
func (p *program) everything() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, "\n")
}

// opsPages is what an ops port shows.
func opsPages(t *testing.T, p *program) string {
	t.Helper()
	var all strings.Builder
	for _, page := range []string{"/metrics", "/readyz", "/healthz"} {
		resp, err := http.Get(p.ops + page)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(&all, resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// Twenty markers are sent in every place of every call of the contract, to the programs as
// they run, on real engines; rows with them become dead letters of the mirror. They come to
// light in no line of any log at its most verbose, in no metric, no reason of a dead letter
// and no refusal.
func TestWhatClientsSendComesToLightInNoProgram(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	markers := hostiletest.Markers(seed)
	search := hostiletest.NewSearch(markers)
	stack := localstack.Test(t)
	who := newCast(t, stack)
	env := append(who.settings(t, stack), "OCTOPAY_LOG_LEVEL=debug")
	orderd := start(t, "orderd", env).ready(t)
	syncerd := start(t, "syncerd", env)
	base := orderd.api

	clean := who.born(t, base, "clean", 1, "CNY")
	var mu sync.Mutex
	statuses, sent := map[int]int{}, 0
	note := func(status int) {
		mu.Lock()
		defer mu.Unlock()
		statuses[status]++
		sent++
	}
	var g errgroup.Group
	g.SetLimit(8)
	for n, m := range markers {
		body := fmt.Sprintf(`{"uid":"9527","bid":"1001","out_trade_no":"M-%d","amount":19900,"currency":"CNY","subject":%s,"metadata":{"a":%s}}`, n, m.JSON(), m.JSON())
		order := who.must(t, http.StatusCreated, http.MethodPost, base, "/v1/orders", body).order(t).OrderID
		who.must(t, http.StatusOK, http.MethodPost, base, "/v1/orders/"+order+"/pay", payment("1", 19900, "CNY"))
		who.must(t, http.StatusConflict, http.MethodPost, base, "/v1/orders/"+order+"/pay", payment("2", 19900, "CNY"))
		who.must(t, http.StatusCreated, http.MethodPost, base, "/v1/orders/"+order+"/refunds", `{"out_refund_no":"r","amount":1}`)
		values := map[string]string{"order_id": order, "out_refund_no": "r", "seq": "3", "uid": "9527", "bid": "1001"}
		for _, c := range openapitest.Calls(t) {
			for i, r := range hostiletest.Requests(t, c, m, values) {
				if i%4 != n%4 { // each place is five markers'
					continue
				}
				g.Go(func() error {
					a, err := who.send(t, r.Method, base, r.Target, r.Body, r.Header)
					if err != nil {
						return err
					}
					note(a.status)
					if found := search.Leaks(a.status, a.header, a.raw); found != nil {
						return fmt.Errorf("%d to %s %s %.300s repeats %v", a.status, r.Method, r.Target, r.Body, found)
					}
					return nil
				})
			}
		}
		for i, text := range hostiletest.Broken(m, who.app) {
			for _, address := range []string{base, orderd.ops, syncerd.ops} {
				if address != base && i%4 != n%4 {
					continue
				}
				g.Go(func() error {
					conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
					if err != nil {
						return err
					}
					defer conn.Close()
					_, _ = io.WriteString(conn, text)
					_ = conn.(*net.TCPConn).CloseWrite()
					resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						return nil // it hung up
					}
					raw, _ := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if address == base {
						note(resp.StatusCode)
					}
					if found := search.Leaks(resp.StatusCode, resp.Header, raw); found != nil {
						return fmt.Errorf("%d to %.300q repeats %v", resp.StatusCode, text, found)
					}
					return nil
				})
			}
		}
		// What belongs to an order is in it.
		if a := who.must(t, http.StatusOK, http.MethodGet, base, "/v1/orders/"+order, ""); search.In(string(a.raw)) == nil {
			t.Errorf("%s is not in its order: %s", m.Name, a)
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "?include=journal", "/refunds"} {
		if a := who.must(t, http.StatusOK, http.MethodGet, base, "/v1/orders/"+clean+path, ""); search.In(string(a.raw)) != nil {
			t.Errorf("another order has %v", search.In(string(a.raw)))
		}
	}
	t.Logf("%d requests: %v", sent, statuses)
	for _, status := range []int{200, 201, 400, 401, 404, 405, 409, 413, 415} {
		if statuses[status] == 0 {
			t.Errorf("nothing was answered %d", status)
		}
	}

	reasons := deadLetters(t, stack, markers)
	quotedByServers(t, stack, who, orderd, syncerd, search, markers)
	// A line that has what is looked for, in the log that is looked through.
	control := hostiletest.Marker{Name: "control", Text: fmt.Sprintf("control-%d", rand.Uint64())}
	if _, err := who.send(t, http.MethodGet, base, "/v1/orders/"+clean, "", http.Header{"X-Request-Id": {control.Text}}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the control is in the log", func() bool {
		return hostiletest.NewSearch([]hostiletest.Marker{control}).In(orderd.everything()) != nil
	})
	for name, text := range map[string]string{
		"orderd's log": orderd.everything(), "syncerd's log": syncerd.everything(), "orderd's ops port": opsPages(t, orderd),
		"syncerd's ops port": opsPages(t, syncerd), "a reason of a dead letter": strings.Join(reasons, "\n"),
	} {
		if found := search.In(text); found != nil {
			t.Errorf("%s has %v", name, found)
		}
		if len(text) < 40 {
			t.Errorf("%s is %q; is it the whole of it?", name, text)
		}
	}
	if n := strings.Count(orderd.everything(), `"msg":"internal error"`); n < len(markers) {
		t.Errorf("%d internal errors are in orderd's log, of %d", n, len(markers))
	}
	if lines := strings.Count(orderd.everything(), `"msg":"request"`); lines < sent*8/10 {
		t.Errorf("%d of %d requests are in orderd's log", lines, sent)
	}
}

// deadLetters makes dead letters of rows with markers: rows in the table of another buyer,
// which a collector refuses, and one that the mirror's database refuses. It returns their
// reasons.
func deadLetters(t *testing.T, stack *localstack.Stack, markers []hostiletest.Marker) (reasons []string) {
	t.Helper()
	m := stack.Map
	truth, mirror := stack.Admin(t, "uid-a"), stack.Admin(t, "bid-a")
	from, to := m.Locate(9527), shardmap.Location{}
	for uid := int64(1); to == (shardmap.Location{}) || to.Database != from.Database || to.Table == from.Table; uid++ {
		to = m.Locate(uid)
	}
	uidSchema := m.Database(shardmap.UID, from.Database).Schema
	copies := m.Locate(1001)
	bidSchema := m.Database(shardmap.BID, copies.Database).Schema
	columns := schema.List(schema.OrderColumns)
	// One for each marker: its subject and metadata.
	result, err := truth.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO `%s`.order_%d (%s) SELECT %s FROM `%s`.order_%d WHERE out_trade_no LIKE 'M-%%'",
		uidSchema, to.Table, columns, columns, uidSchema, from.Table))
	if err != nil {
		t.Fatal(err)
	}
	moved, err := result.RowsAffected()
	if err != nil || moved < int64(len(markers)) {
		t.Fatalf("%d rows for %d markers, %v", moved, len(markers), err)
	}
	if _, err := mirror.ExecContext(t.Context(), fmt.Sprintf("ALTER TABLE `%s`.order_%d ADD CONSTRAINT few CHECK (ver < 1000)", bidSchema, copies.Table)); err != nil {
		t.Fatal(err)
	}
	if _, err := truth.ExecContext(t.Context(), fmt.Sprintf("UPDATE `%s`.order_%d SET ver = 1000 WHERE out_trade_no = 'M-0'", uidSchema, from.Table)); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the rows are dead letters", func() bool {
		rs, err := mirror.QueryContext(t.Context(), "SELECT reason FROM `"+bidSchema+"`.dead_letter")
		if err != nil {
			t.Fatal(err)
		}
		defer rs.Close()
		reasons = nil
		for rs.Next() {
			var reason string
			if err := rs.Scan(&reason); err != nil {
				t.Fatal(err)
			}
			reasons = append(reasons, reason)
		}
		if rs.Err() != nil {
			t.Fatal(rs.Err())
		}
		refused := 0
		for _, r := range reasons {
			if strings.Contains(r, "refuses") {
				refused++
			}
		}
		return int64(len(reasons)) > moved && refused > 0
	})
	t.Logf("%d dead letters: %q … %q", len(reasons), reasons[0], reasons[len(reasons)-1])
	return reasons
}

// quotedByServers lets both databases refuse rows with errors that quote them: orders that
// are made, and a row on its way to the mirror.
func quotedByServers(t *testing.T, stack *localstack.Stack, who *cast, orderd, syncerd *program, search *hostiletest.Search, markers []hostiletest.Marker) {
	t.Helper()
	truth, mirror := stack.Admin(t, "uid-a"), stack.Admin(t, "bid-a")
	do := func(db *sql.DB, statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	quoting := func(c shardmap.Cluster, key int64) (create, drop string) {
		at := stack.Map.Locate(key)
		name := "`" + stack.Map.Database(c, at.Database).Schema + "`"
		return fmt.Sprintf("CREATE TRIGGER %s.quotes BEFORE INSERT ON %s.order_%d FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = NEW.subject", name, name, at.Table),
			"DROP TRIGGER " + name + ".quotes"
	}
	create, drop := quoting(shardmap.UID, 9527)
	do(truth, create)
	order := `{"uid":"%d","bid":"1001","out_trade_no":"Q-%d","amount":1,"currency":"CNY","subject":%s}`
	for n, m := range markers {
		body := fmt.Sprintf(order, 9527, n, m.JSON())
		a := who.must(t, http.StatusInternalServerError, http.MethodPost, orderd.api, "/v1/orders", body)
		if found := search.Leaks(a.status, a.header, a.raw); found != nil {
			t.Errorf("%s has %v", a, found)
		}
	}
	do(truth, drop)
	create, drop = quoting(shardmap.BID, 1001)
	do(mirror, create)
	who.must(t, http.StatusCreated, http.MethodPost, orderd.api, "/v1/orders", fmt.Sprintf(order, 9527, len(markers), markers[0].JSON()))
	eventually.True(t, "the mirror's database refuses a row", func() bool { return syncerd.said("1644") })
	do(mirror, drop)
}
