package baseline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/loadtest/proc"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/mysqlstore"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// A RawJob is what raw is to do: create the orders First, First+1, … of a plan.
type RawJob struct {
	Plan     traffic.Config
	First    uint64
	InFlight int           // orders in flight, an equal share for each database
	AtOnce   int           // transactions in flight on one server; 2, as many as the lanes have
	Warmup   time.Duration // before it is measured
	Duration time.Duration // that is measured; 0: until Orders are stored
	Orders   int           // to store, when Duration is 0; the last transactions may store some more
}

// atOnce is the default of RawJob.AtOnce.
const atOnce = 2

// fillMax is how long a job of so many orders may take.
const fillMax = time.Hour

// rawQueue is how many orders wait for each database: its share is random, and no
// transaction is to wait for it.
const rawQueue = 4096

func serveRaw(ctx context.Context, databases *cluster.Cluster, ids idSource, stdin io.Reader, stdout io.Writer) error {
	var job RawJob
	if err := json.NewDecoder(stdin).Decode(&job); err != nil {
		return fmt.Errorf("baseline: raw: the job: %w", err)
	}
	run, err := doRaw(ctx, databases, ids, job)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(run)
}

// doRaw does a job.
func doRaw(ctx context.Context, databases *cluster.Cluster, ids idSource, job RawJob) (report.Run, error) {
	plan, err := traffic.New(job.Plan)
	if err != nil {
		return report.Run{}, err
	}
	job.AtOnce = cmp.Or(job.AtOnce, atOnce)
	size := databases.Map().Size()
	batch := job.InFlight / size
	switch {
	case job.AtOnce < 1:
		return report.Run{}, errors.New("baseline: raw: at least one transaction must be in flight")
	case batch < 1:
		return report.Run{}, fmt.Errorf("baseline: raw: %d orders in flight over %d databases are less than one for each", job.InFlight, size)
	case len(plan.Mix) != 1 || plan.Mix[0].Kind != traffic.Create:
		return report.Run{}, errors.New("baseline: raw: the plan isn't of creates alone")
	case (job.Duration > 0) == (job.Orders > 0):
		return report.Run{}, errors.New("baseline: raw: either how long or how many")
	}
	store := mysqlstore.New(databases)
	r := &raw{
		job: job, plan: plan, store: store, ids: ids, shards: databases.Map(), batch: batch,
		gates: map[string]*semaphore.Weighted{}, full: make(chan struct{}),
	}
	for _, s := range r.shards.Servers(shardmap.UID) {
		r.gates[s.Name] = semaphore.NewWeighted(int64(r.job.AtOnce))
	}
	run, err := r.do(ctx)
	return run, errors.Join(err, store.Close())
}

type raw struct {
	job    RawJob
	plan   *traffic.Plan
	store  *mysqlstore.Store
	ids    idSource
	shards *shardmap.Map
	batch  int // orders of one transaction
	gates  map[string]*semaphore.Weighted

	measured atomic.Bool
	stored   atomic.Int64 // since it is measured
	full     chan struct{}
	ended    sync.Once

	mu   sync.Mutex
	took []time.Duration // of transactions
}

// do stores orders and returns what was measured of it.
func (r *raw) do(ctx context.Context) (report.Run, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work, workers := errgroup.WithContext(ctx)
	queues := make([]chan ordersvc.New, r.shards.Size())
	for i := range queues {
		queues[i] = make(chan ordersvc.New, max(rawQueue, 2*r.batch))
		work.Go(func() error { return r.write(workers, i+1, queues[i]) })
	}
	work.Go(func() error { return r.make(workers, queues) })

	var usedFrom, usedTo time.Duration
	var began time.Time
	measure := func() (err error) {
		if err := wait(workers, r.job.Warmup, nil); err != nil {
			return err
		}
		if usedFrom, err = proc.CPU(os.Getpid()); err != nil {
			return err
		}
		began = time.Now()
		r.measured.Store(true)
		if err := wait(workers, cmp.Or(r.job.Duration, fillMax), r.full); err != nil {
			return err
		}
		r.measured.Store(false)
		if n := r.stored.Load(); n < int64(r.job.Orders) {
			return fmt.Errorf("baseline: raw: %d of %d orders were stored in %s", n, r.job.Orders, fillMax)
		}
		usedTo, err = proc.CPU(os.Getpid())
		return err
	}
	err := measure()
	lasted := time.Since(began)
	n := r.stored.Load()
	stop(nil)
	if e := work.Wait(); e != nil && !errors.Is(e, context.Canceled) {
		err = e // the cause of the other
	}
	if err != nil {
		return report.Run{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Of transactions: an order waits for one besides, so they are no latencies of orders.
	took := quantiles(r.took)
	run := report.Run{
		Scenario: r.plan.Scenario(), Target: Raw, Loop: report.Closed, Seed: r.plan.Seed, Started: began.UTC(), DurationSec: lasted.Seconds(),
		Generator: fmt.Sprintf("in one process, %d orders in flight, %d in a transaction, %d transactions at once; p50 %.1f and p99 %.1f ms of a transaction",
			r.batch*r.shards.Size(), r.batch, r.job.AtOnce, took.P50, took.P99),
		Offered: n, Sent: n, ByAnswer: map[string]int64{"201": n}, PerSecond: float64(n) / lasted.Seconds(),
		CPUSec: map[string]float64{Raw: (usedTo - usedFrom).Seconds()},
	}
	if n == 0 {
		run.Invalid = append(run.Invalid, "nothing was stored")
	}
	return run, nil
}

// wait waits so long, or until done is closed; it returns the error of ctx.
func wait(ctx context.Context, d time.Duration, done <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// make puts the plan's orders into the queues of their databases.
func (r *raw) make(ctx context.Context, queues []chan ordersvc.New) error {
	for n := r.job.First; ; n++ {
		o := r.plan.Order(n)
		row := ordersvc.New{
			Key:    ordersvc.Key{UID: o.UID, BID: o.BID, OutTradeNo: o.OutTradeNo},
			Amount: o.Amount, Currency: o.Currency, Subject: o.Subject, Metadata: o.Metadata(),
			ExpiresIn: 30 * time.Minute, Actor: "app", RequestID: "raw",
		}
		select {
		case queues[r.shards.Locate(o.UID).Database-1] <- row:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// write stores orders of one database, a transaction after the other.
func (r *raw) write(ctx context.Context, database int, queue <-chan ordersvc.New) error {
	gate := r.gates[r.shards.Database(shardmap.UID, database).Server.Name]
	for {
		orders := make([]schema.Order, 0, r.batch)
		for len(orders) < r.batch {
			select {
			case n := <-queue:
				id, err := r.ids.Next(n.UID)
				if err != nil {
					return err
				}
				orders = append(orders, n.Order(id))
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := gate.Acquire(ctx, 1); err != nil {
			return err
		}
		began := time.Now()
		results := r.store.Insert(ctx, database, orders)
		took := time.Since(began)
		gate.Release(1)
		for _, result := range results {
			if result.Err != nil {
				return fmt.Errorf("baseline: raw: database %d: %w", database, result.Err)
			}
			if result.Taken {
				return fmt.Errorf("baseline: raw: database %d: number %s was there before", database, result.Order.OutTradeNo)
			}
		}
		r.count(len(orders), took)
	}
}

// count counts a transaction, while it is measured.
func (r *raw) count(orders int, took time.Duration) {
	if !r.measured.Load() {
		return
	}
	r.mu.Lock()
	r.took = append(r.took, took)
	r.mu.Unlock()
	if n := r.stored.Add(int64(orders)); r.job.Duration == 0 && n >= int64(r.job.Orders) {
		r.ended.Do(func() { close(r.full) })
	}
}

// quantiles are those of times, in ms.
func quantiles(took []time.Duration) report.Quantiles {
	if len(took) == 0 {
		return report.Quantiles{}
	}
	slices.Sort(took)
	at := func(q float64) float64 {
		return float64(took[min(int(q*float64(len(took))), len(took)-1)].Microseconds()) / 1000
	}
	return report.Quantiles{P50: at(.5), P90: at(.9), P99: at(.99), P999: at(.999), Max: at(1)}
}
