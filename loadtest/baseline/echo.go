package baseline

import (
	"context"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
)

// An echo is an order service without storage.
type echo struct {
	createsOnly
	ids idSource
}

// Create answers the order that it was sent.
func (e echo) Create(_ context.Context, n ordersvc.New) (ordersvc.Created, error) {
	id, err := e.ids.Next(n.UID)
	if err != nil {
		return ordersvc.Created{}, err
	}
	o := n.Order(id)
	o.UpdatedAt = o.CreatedAt()
	return ordersvc.Created{Order: o}, nil
}

// It has nothing to read.

func (echo) Get(context.Context, idgen.ID) (schema.Order, error) {
	return schema.Order{}, ordersvc.ErrNotFound
}

func (echo) Journal(context.Context, schema.Order) ([]schema.Entry, error) { return nil, nil }

func (echo) Find(context.Context, ordersvc.Key) (schema.Order, error) {
	return schema.Order{}, ordersvc.ErrNotFound
}

func (echo) List(context.Context, ordersvc.Query) (ordersvc.Page, error) {
	return ordersvc.Page{}, nil
}
