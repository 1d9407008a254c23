package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// Term is the term of a worker number: for how long creates outlive the meta
	// database, and for how long a number that was given up stays unused.
	Term = 5 * time.Minute

	renewEvery = 10 * time.Second
	answerMax  = 3 * time.Second // an answer that takes longer counts as none
	retryEvery = time.Second
	fullEvery  = 5 * time.Second // there is none to have, which doesn't change by the second
	// workerNames begins the name of the lease of each worker number. In the meta
	// database the row of this very name says from when on numbers are given out: it is
	// written when that database is made, by package schema.
	workerNames = "worker/"
)

// A Worker holds a worker number for a generator. It acquires any number that is free,
// renews it, and takes another one when it can't be used any more. While the table is
// away the generator goes on until the end of its grant, and then issues nothing.
//
// A number is never given back before its end: ids of all that time may exist. So a
// process that restarts uses another one, and one that is done just stops renewing.
type Worker struct {
	table  Table
	holder string
	gen    *idgen.Generator
	log    *slog.Logger
	back   chan struct{} // the number in use was given back
}

// NewWorker returns a worker that feeds gen, and is the only one that does. holder must
// be this process's alone (see NewHolder). log may be nil.
func NewWorker(table Table, holder string, gen *idgen.Generator, log *slog.Logger) *Worker {
	if log == nil {
		log = slog.Default()
	}
	return &Worker{table: table, holder: holder, gen: gen, log: log, back: make(chan struct{}, 1)}
}

// Run feeds the generator until ctx ends, and returns its error.
func (w *Worker) Run(ctx context.Context) error {
	for {
		l, number, err := w.take(ctx)
		if err != nil {
			return err
		}
		w.log.Info("worker number: acquired", "number", number, "token", l.Token, "ids_end", idgen.End.Format(time.DateOnly))
		why, err := w.keep(ctx, l, number)
		if err != nil {
			return err
		}
		w.gen.Revoke(number)
		w.log.Warn("worker number: given up, another is needed", "number", number, "token", l.Token, "because", why)
	}
}

// Next returns a new id for uid from the generator.
func (w *Worker) Next(uid int64) (idgen.ID, error) { return w.gen.Next(uid) }

// GiveBack is the alarm that an id of this worker number was not new: the generator
// stops using it at once and gets another one, if it is the number in use.
func (w *Worker) GiveBack(number int) {
	if w.gen.Revoke(number) {
		select {
		case w.back <- struct{}{}:
		default: // one is there already
		}
	}
}

// take acquires a number and grants it to the generator, or returns the error of ctx.
func (w *Worker) take(ctx context.Context) (Lease, int, error) {
	// The generator has no valid number now, so what is there is of an earlier one.
	select {
	case <-w.back:
	default:
	}
	said := ""
	for {
		l, number, err := w.tryToTake(ctx)
		if ctx.Err() != nil {
			return Lease{}, 0, ctx.Err()
		}
		if err == nil {
			return l, number, nil
		}
		if state := reason(err); state != said {
			w.log.Warn("worker number: waiting for one; ids can't be made", "because", state, "error", err)
			said = state
		}
		if errors.Is(err, errAllTaken) || errors.Is(err, ErrClosed) {
			pause(ctx, fullEvery)
		} else {
			pause(ctx, retryEvery)
		}
	}
}

var (
	errAllTaken = errors.New("all 1,024 worker numbers are taken")
	errLayout   = errors.New("the layout of ids has no room for this time")
)

// reason names err for the log, so that it is logged when it changes and not each time.
func reason(err error) string {
	for _, known := range []error{errAllTaken, errLayout, ErrClosed, idgen.ErrBehind} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "the table of leases does not answer"
}

// tryToTake makes one attempt. Many processes may do so at the same moment, so it picks
// at random and picks again when somebody was faster.
func (w *Worker) tryToTake(ctx context.Context) (Lease, int, error) {
	try, cancel := context.WithTimeout(ctx, answerMax)
	taken, now, err := w.table.Taken(try, workerNames)
	cancel()
	if err != nil {
		return Lease{}, 0, err
	}
	// Asked before a number is acquired, since each one is lost for a Term.
	if now.Before(idgen.Epoch) || !now.Add(Term).Before(idgen.End) {
		return Lease{}, 0, fmt.Errorf("%w: the meta database's clock says %s", errLayout, now.Format(time.DateTime))
	}
	for _, number := range rand.Perm(idgen.Workers) {
		name := workerNames + strconv.Itoa(number)
		if taken[name] {
			continue
		}
		try, cancel := context.WithTimeout(ctx, answerMax)
		l, err := w.table.Acquire(try, name, w.holder, Term)
		cancel()
		if errors.Is(err, ErrTaken) {
			continue
		}
		if err != nil {
			return Lease{}, 0, err
		}
		return l, number, w.gen.Grant(grantOf(l, number))
	}
	return Lease{}, 0, errAllTaken
}

// keep renews l and grants it to the generator until the number can't be used any more,
// and says why, or until ctx ends, and returns its error.
func (w *Worker) keep(ctx context.Context, l Lease, number int) (why string, err error) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	answered := true
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-w.back:
			return "it was given back: an id was not new", nil
		case <-tick.C:
		}
		try, cancel := context.WithTimeout(ctx, answerMax)
		renewed, err := w.table.Renew(try, l, Term)
		cancel()
		switch {
		case err == nil:
			l = renewed
			if err := w.gen.Grant(grantOf(l, number)); err != nil {
				return err.Error(), nil
			}
			if !answered {
				w.log.Info("worker number: renewed again", "number", number)
			}
			answered = true
		case errors.Is(err, ErrLost):
			return "its lease ended and somebody else has it", nil
		case ctx.Err() == nil && answered:
			_, left := w.gen.Worker()
			w.log.Warn("worker number: not renewed; ids can be made as long as the lease lasts", "number", number, "left_ms", left.Milliseconds(), "error", err)
			answered = false
		}
	}
}

func grantOf(l Lease, number int) idgen.Grant {
	return idgen.Grant{Worker: number, Token: l.Token, Until: l.Until, Now: l.Now, SentAt: l.SentAt}
}

var (
	numberDesc = prometheus.NewDesc("octopay_worker_number", "Worker number in use; absent while there is none.", nil, nil)
	leftDesc   = prometheus.NewDesc("octopay_worker_lease_seconds", "For how long ids can be made if the lease isn't renewed.", nil, nil)
	endDesc    = prometheus.NewDesc("octopay_id_layout_end_timestamp_seconds", "When the layout of order ids runs out, seconds since 1970.", nil, nil)
)

// Describe implements prometheus.Collector.
func (w *Worker) Describe(ch chan<- *prometheus.Desc) {
	ch <- numberDesc
	ch <- leftDesc
	ch <- endDesc
}

// Collect implements prometheus.Collector.
func (w *Worker) Collect(ch chan<- prometheus.Metric) {
	number, left := w.gen.Worker()
	if left > 0 {
		ch <- prometheus.MustNewConstMetric(numberDesc, prometheus.GaugeValue, float64(number))
	}
	ch <- prometheus.MustNewConstMetric(leftDesc, prometheus.GaugeValue, left.Seconds())
	ch <- prometheus.MustNewConstMetric(endDesc, prometheus.GaugeValue, float64(idgen.End.Unix()))
}
