package baseline

import (
	"context"
	"errors"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/ordersvc"
)

// createsOnly refuses the calls that no scenario compares.
type createsOnly struct{}

func (createsOnly) CreateAll(_ context.Context, all []ordersvc.New) []ordersvc.Outcome {
	out := make([]ordersvc.Outcome, len(all))
	for i := range out {
		out[i].Err = errors.ErrUnsupported
	}
	return out
}

func (createsOnly) Change(context.Context, ordersvc.Change) (ordersvc.Changed, error) {
	return ordersvc.Changed{}, errors.ErrUnsupported
}

func (createsOnly) Life(context.Context, idgen.ID) (ordersvc.Life, error) {
	return ordersvc.Life{}, errors.ErrUnsupported
}
