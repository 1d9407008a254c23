package boot

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/payconfig"
)

// theKeys is what a program waits for that serves callers.
const theKeys = "the API keys"

// Keys returns the keys of the API, and the part that keeps them up to date, which goes
// behind that of the databases and before those that use them. file keeps the keys' hashes
// over a restart, see auth.Config; "" is none. The program isn't ready before they are
// known.
func (p *Program) Keys(databases *cluster.Cluster, file string) (*auth.Keyring, Part, error) {
	masters, err := p.shared.Masters()
	if err != nil {
		return nil, Part{}, err
	}
	keys := auth.New(auth.Config{Store: auth.NewStore(databases.Meta(), masters), Masters: masters, File: file, Log: p.Log})
	p.Registry.MustRegister(keys)
	p.Ready.Waiting(theKeys)
	return keys, Part{theKeys, func(ctx context.Context) error {
		wait, stop := context.WithCancel(ctx)
		var work sync.WaitGroup
		defer work.Wait()
		defer stop()
		work.Go(func() {
			if Until(wait, p.Log, theKeys, func(context.Context) error { return keys.Usable() }) == nil {
				p.Ready.Arrived(theKeys)
			}
		})
		return keys.Run(ctx)
	}}, nil
}

// theConfig is what a program waits for that takes orders.
const theConfig = "the payment config"

// PaymentConfig returns the config in force, and the part that follows it, which goes
// behind that of the databases. Until there is one it is payconfig.NotRead, and the program
// isn't ready.
func (p *Program) PaymentConfig(databases *cluster.Cluster) (func() *payconfig.Snapshot, Part) {
	var watch atomic.Pointer[payconfig.Watch]
	none := payconfig.NotRead()
	p.Ready.Waiting(theConfig)
	inForce := func() *payconfig.Snapshot {
		if w := watch.Load(); w != nil {
			return w.Snapshot()
		}
		return none
	}
	return inForce, Part{theConfig, func(ctx context.Context) error {
		if err := Until(ctx, p.Log, theConfig, func(ctx context.Context) error {
			w, err := payconfig.Follow(ctx, payconfig.NewStore(databases.Meta()), p.Log)
			if err == nil {
				watch.Store(w)
			}
			return err
		}); err != nil {
			return nil // ctx has ended
		}
		p.Registry.MustRegister(watch.Load())
		p.Ready.Arrived(theConfig)
		return watch.Load().Run(ctx)
	}}
}
