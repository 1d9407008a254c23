package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// A Part is something that a program runs until it is told to stop.
type Part struct {
	Name string
	// Run works until ctx ends, then finishes what it has accepted and returns nil.
	// An earlier return, or an error, ends the program.
	Run func(ctx context.Context) error
}

// Run runs the parts side by side until ctx ends or one of them returns. Then it
// stops them one after the other, the last first: a part can rely on those before it
// until it has returned itself. It returns when all have.
func Run(ctx context.Context, parts ...Part) error {
	type running struct {
		stop context.CancelFunc
		done chan struct{}
		err  error
	}
	first := make(chan struct{}, len(parts))
	all := make([]*running, len(parts))
	for i, p := range parts {
		pctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		r := &running{stop: stop, done: make(chan struct{})}
		all[i] = r
		go func() {
			defer close(r.done)
			if err := p.Run(pctx); err != nil && !errors.Is(err, context.Canceled) {
				r.err = fmt.Errorf("%s: %w", p.Name, err)
			} else if pctx.Err() == nil {
				r.err = fmt.Errorf("%s: ended by itself", p.Name)
			}
			first <- struct{}{}
		}()
	}
	select {
	case <-ctx.Done():
	case <-first:
	}
	var errs []error
	for i := len(all) - 1; i >= 0; i-- {
		all[i].stop()
		<-all[i].done
		errs = append(errs, all[i].err)
	}
	return errors.Join(errs...)
}

// HTTP is the part that serves requests from l, in TLS if s has a TLSConfig. When it is told to stop it calls
// drain, if that isn't nil, accepts no more connections, and gives the requests under
// way up to grace to finish.
func HTTP(name string, l net.Listener, s *http.Server, grace time.Duration, drain func()) Part {
	return Part{name, func(ctx context.Context) error {
		served := make(chan error, 1)
		go func() {
			if s.TLSConfig != nil {
				served <- s.ServeTLS(l, "", "")
				return
			}
			served <- s.Serve(l)
		}()
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
		}
		if drain != nil {
			drain()
		}
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		err := s.Shutdown(limit)
		if err != nil {
			err = errors.Join(fmt.Errorf("requests still under way after %s: %w", grace, err), s.Close())
		}
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}}
}

// sayEvery is how often Until repeats what it still waits for.
const sayEvery = 30 * time.Second

// Until calls f until it succeeds or ctx ends, whose error it then returns. It logs
// what it waits for, and why, when a reason has held for a second time, since what is
// there in a moment is not worth a word, and then twice a minute, so that whoever looks
// at the end of a log sees it.
func Until(ctx context.Context, log *slog.Logger, what string, f func(context.Context) error) error {
	var last, said string
	began := time.Now()
	saidAt := began
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := f(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		waited := slog.Int64("waited_ms", time.Since(began).Milliseconds())
		if err == nil {
			if said != "" {
				log.Info("it is there", "waited_for", what, waited)
			}
			return nil
		}
		if why := err.Error(); why == last && why != said || time.Since(saidAt) >= sayEvery {
			said, saidAt = why, time.Now()
			log.Warn("waiting", "for", what, "because", why, waited)
		}
		last = err.Error()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
	}
}
