package e2e_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"golang.org/x/sync/errgroup"
)

// masterKey encrypts the signing secrets of this test's channels.
var masterKey = base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))

// A channelKey signs what it sends.
type channelKey struct {
	text   string
	secret []byte
	ids    atomic.Int64
}

func newChannel(t *testing.T, stack *localstack.Stack) *channelKey {
	t.Helper()
	masters, err := auth.ParseMasters(masterKey)
	if err != nil {
		t.Fatal(err)
	}
	made, err := auth.NewStore(stack.Cluster(t).Meta(), masters).Create(t.Context(), auth.Spec{Role: auth.Channel}, "test")
	if err != nil {
		t.Fatal(err)
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(made.Secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	return &channelKey{text: made.Text, secret: secret}
}

// sign returns what signs a request about an order.
func (c *channelKey) sign(orderID string) func(*http.Request, []byte) {
	return func(r *http.Request, body []byte) {
		id, now := fmt.Sprint("msg_", c.ids.Add(1)), strconv.FormatInt(time.Now().Unix(), 10)
		mac := hmac.New(sha256.New, c.secret)
		_, _ = fmt.Fprintf(mac, "%s.%s.%s.%s", id, now, orderID, body)
		r.Header.Set("webhook-id", id)
		r.Header.Set("webhook-timestamp", now)
		r.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
}

// An op is one operation of a life: the call below the order's path, its body, and the
// journal's name of it if it is answered with success.
type op struct {
	call, journal string
	body          any
	channel       bool
}

// Orders live on two processes at once, one of which is killed again and again, and every
// operation is repeated until it is settled. Afterwards each row is the fold of its
// journal, what was acknowledged is in it, once, and the mirror has the same rows and
// entries. Fault 2: of four refunds of 60 % at most one is accepted.
func TestOrdersLiveOnTwoProcesses(t *testing.T) {
	const lives = 60
	stack := localstack.Test(t)
	env := append(environment(t, stack), "OCTOPAY_MASTER_KEY="+masterKey)
	channel := newChannel(t, stack)
	var mu sync.Mutex
	programs := []*program{start(t, "orderd", env).ready(t), start(t, "orderd", env).ready(t)}
	start(t, "syncerd", env)
	var turn atomic.Int64
	api := func() string {
		mu.Lock()
		defer mu.Unlock()
		return programs[int(turn.Add(1))%2].api
	}
	var born []order
	for _, r := range traffic(7, lives) {
		s, err := settle(t, api, r)
		if err != nil {
			t.Fatal(err)
		}
		if s.status == http.StatusCreated || s.unknown > 0 {
			born = append(born, s.order(t))
		}
	}

	var acked sync.Map // "order op"
	var done, repeated atomic.Int64
	do := func(id string, o op) error {
		for {
			base := api()
			u, err := url.Parse(base)
			if err != nil {
				return err
			}
			key, sign := keyOf(t, u.Host), (func(*http.Request, []byte))(nil)
			if o.channel {
				key, sign = channel.text, channel.sign(id)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			a, err := callAs(t, ctx, key, http.MethodPost, base+"/v1/orders/"+id+o.call, o.body, sign)
			cancel()
			switch {
			case err != nil, a.status == http.StatusServiceUnavailable, a.status == http.StatusGatewayTimeout:
				repeated.Add(1)
			case a.status == http.StatusOK || a.status == http.StatusCreated:
				if a.header.Get("X-Late-Payment") == "" {
					acked.Store(id+" "+o.journal, true)
				}
				return nil
			case a.status == http.StatusConflict || a.status == http.StatusUnprocessableEntity || a.status == http.StatusNotFound:
				return nil
			default:
				return fmt.Errorf("%s%s: %s", id, o.call, a)
			}
		}
	}
	pay := func(o order, number string, amount int64) op {
		return op{"/pay", "pay:wechat:" + number, map[string]any{"channel": "wechat", "channel_trade_no": number, "amount": amount, "currency": o.Currency}, true}
	}
	refund := func(number string, amount int64) op {
		return op{"/refunds", "refund:" + number, map[string]any{"out_refund_no": number, "amount": amount}, false}
	}
	ended := make(chan error, 1)
	go func() {
		var g errgroup.Group
		g.SetLimit(24)
		for i, o := range born {
			id := o.OrderID
			all := []op{
				pay(o, "a"+id, o.Amount), pay(o, "a"+id, o.Amount), pay(o, "b"+id, o.Amount), pay(o, "c"+id, o.Amount+1),
				refund("r1", max(1, o.Amount*6/10)), refund("r2", max(1, o.Amount*6/10)), refund("r3", max(1, o.Amount*6/10)), refund("r4", max(1, o.Amount*6/10)),
				{"/refunds/r1/result", "refund_result:r1:failed", map[string]any{"result": "failed"}, true},
				{"/refunds/r1/result", "refund_result:r1:succeeded", map[string]any{"result": "succeeded", "channel_refund_no": "x" + id}, true},
				{"/unapplied-payments/2/refund", "unapplied_refund:2", map[string]any{"out_refund_no": "u2"}, false},
				{"/unapplied-payments/3/refund", "unapplied_refund:3", map[string]any{"out_refund_no": "u3"}, false},
			}
			if i%3 == 0 {
				all = append(all, op{"/close", "", map[string]any{"reason": "buyer"}, false})
			}
			r := rand.New(rand.NewPCG(7, uint64(i)))
			for range 2 {
				r.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
				for _, one := range slices.Clone(all) {
					g.Go(func() error {
						defer done.Add(1)
						return do(id, one)
					})
				}
			}
		}
		ended <- g.Wait()
	}()
	killed := 0
	for err := errors.New("under way"); err != nil; {
		select {
		case err = <-ended:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Millisecond):
			if done.Load() < int64((killed+1)*lives*4) {
				continue
			}
			fresh := start(t, "orderd", env).ready(t)
			mu.Lock()
			old := programs[killed%2]
			programs[killed%2] = fresh
			mu.Unlock()
			old.kill(t)
			killed++
		}
	}
	if killed == 0 || repeated.Load() == 0 {
		t.Errorf("%d kills, %d repeats: the fault did not happen", killed, repeated.Load())
	}

	c := stack.Cluster(t)
	truth, journal := rows(t, c, shardmap.UID), entries(t, c, shardmap.UID)
	count := map[schema.Status]int{}
	operations := 0
	for id, o := range truth {
		folded, err := ordersvc.Fold(ordersvc.Born(o), journal[id])
		if len(journal[id]) == 0 {
			folded.UpdatedAt = o.UpdatedAt
		}
		if err != nil || folded != o {
			t.Errorf("%s: the journal makes %+v (%v), the row is %+v", o.OrderID(), folded, err, o)
		}
		if o.RefundedAmount > o.PaidAmount || o.PaidAmount > o.Amount {
			t.Errorf("%+v", o)
		}
		count[o.Status]++
		operations += len(journal[id])
	}
	acked.Range(func(k, _ any) bool {
		id, name, _ := strings.Cut(k.(string), " ")
		parsed, err := idgen.Parse(id)
		if err != nil {
			t.Fatal(err)
		}
		found := name == "" // a close, which may have been done before under another name
		for _, e := range journal[parsed.Snowflake()] {
			found = found || e.Op == name
		}
		if !found {
			t.Errorf("%s: %s was acknowledged and is not in the journal", id, name)
		}
		return true
	})
	if len(truth) != len(born) || operations < 2*lives {
		t.Errorf("%d orders, %d operations", len(truth), operations)
	}
	eventually.Within(t, 2*time.Minute, "the mirror has the same rows and entries", func() bool {
		copies := rows(t, c, shardmap.BID)
		if !maps.Equal(copies, truth) {
			return false
		}
		same := entries(t, c, shardmap.BID)
		for id, want := range journal {
			if fmt.Sprint(same[id]) != fmt.Sprint(want) {
				return false
			}
		}
		return len(same) == len(journal)
	})
	t.Logf("%d orders, %d operations in their journals, %d requests repeated, an orderd killed %d times; %v", len(born), operations, repeated.Load(), killed, count)
}

// entries reads every journal of a cluster by SQL, by order, oldest first.
func entries(t *testing.T, c *cluster.Cluster, cl shardmap.Cluster) map[int64][]schema.Entry {
	t.Helper()
	all := map[int64][]schema.Entry{}
	eachRow(t, c, cl, "SELECT "+schema.List(schema.EntryColumns)+" FROM `%s`.journal_%d ORDER BY order_id, seq", func(scan func(...any) error, _ shardmap.Location) error {
		var e schema.Entry
		err := scan(e.Fields()...)
		all[e.OrderID] = append(all[e.OrderID], e)
		return err
	})
	return all
}
