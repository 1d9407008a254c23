package mysqlstore

import (
	"testing"

	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/storetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a store over the stack, as one process has it.
func open(t testing.TB, stack *localstack.Stack) *Store {
	s := New(stack.Cluster(t))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB) ordersvc.Store { return open(t, localstack.Test(t, localstack.UID)) })
}
