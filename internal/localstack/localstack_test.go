package localstack_test

import (
	"context"
	"testing"

	"github.com/octopay/octopay/internal/localstack"
)

func TestTest(t *testing.T) {
	s := localstack.Test(t)
	t.Log(s.Map.Prefix(), s.NATSURL, s.Server("uid-a").Address())
	c := s.Cluster(t)
	conn, err := c.Database("uid", 1).Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestPrivate(t *testing.T) {
	s := localstack.Private(t, localstack.Options{})
	t.Log(s.Server("uid-a").Pid(), s.Dir)
}
