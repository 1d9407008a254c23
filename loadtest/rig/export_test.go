package rig

import (
	"context"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/localstack"
)

// Stack returns the engines.
func (r *Rig) Stack() *localstack.Stack { return r.stack }

// Durable asks the MariaDB servers again.
func (r *Rig) Durable(ctx context.Context) error {
	_, err := engines(ctx, r.stack.Map, cluster.Config{User: r.stack.User, Password: r.stack.Password})
	return err
}
