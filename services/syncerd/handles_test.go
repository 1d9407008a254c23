package main

import (
	"testing"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/ordersvc/mysqlstore"
	"github.com/octopay/octopay/ordersvc/storetest"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/services/internal/boottest"
	"github.com/octopay/octopay/shardmap"
	mirrored "github.com/octopay/octopay/syncer/mirror"
	"gopkg.in/yaml.v3"
)

// store writes an order under a map, and waits until it is in the mirror.
func store(t *testing.T, stack *localstack.Stack, number string) {
	t.Helper()
	c := stack.Cluster(t)
	orders := mysqlstore.New(c)
	defer orders.Close()
	o := storetest.Order(storetest.Buyer(4, 2), number)
	r := orders.Insert(t.Context(), 4, []schema.Order{o})[0]
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	eventually.True(t, "order "+number+" is in the mirror", func() bool {
		page, err := mirrored.NewSQL(c).List(t.Context(), mirrored.Query{BID: o.BID, OutTradeNo: number, Before: 1<<63 - 1, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Orders) == 1 && page.Orders[0] != r.Order {
			t.Errorf("the mirror has %+v, want %+v", page.Orders[0], r.Order)
		}
		return len(page.Orders) == 1
	})
}

// A newer map gives both servers another address: the mirror goes on there.
func TestItFollowsANewerMap(t *testing.T) {
	stack := localstack.Test(t)
	uid, bid := faultproxy.New(t, stack.Server("uid-a").Address()), faultproxy.New(t, stack.Server("bid-a").Address())
	program := boottest.Start(t, run, boottest.Environ(t, stack, stack.Map))
	boottest.Ready(t, program.Listening(t))
	store(t, stack, "before")

	moved := *stack.Via(t, "uid-a", uid.Addr()).Via(t, "bid-a", bid.Addr())
	var spec shardmap.Spec
	if err := yaml.Unmarshal(moved.Map.Text(), &spec); err != nil {
		t.Fatal(err)
	}
	spec.Epoch = 2
	m, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	moved.Map = m
	for _, p := range append(m.Databases(shardmap.UID), m.Databases(shardmap.BID)...) {
		if _, err := stack.Admin(t, p.Server.Name).Exec("UPDATE `" + p.Schema + "`.owner SET epoch = 2"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stack.Admin(t, "uid-a").Exec("INSERT INTO `"+m.Meta().Schema+"`.shard_map (epoch, hash, text) VALUES (2, ?, ?)", m.Hash(), string(m.Text())); err != nil {
		t.Fatal(err)
	}
	for program.Await(t, "shard map")["epoch"] != 2.0 {
	}
	// What this test itself connects to the proxies comes later.
	eventually.True(t, "both new addresses are used", func() bool { return uid.Accepted() > 0 && bid.Accepted() > 0 })
	store(t, &moved, "after")
	if err := program.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
