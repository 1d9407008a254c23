package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/octopay/octopay/syncer/stream"
)

// A broker is a NATS server with JetStream inside this process. It listens on no
// port.
type broker struct {
	server *server.Server
	conn   *nats.Conn
}

// startBroker starts one that keeps its streams under dir.
func startBroker(dir string) (*broker, error) {
	s, err := server.NewServer(&server.Options{
		ServerName: "quickstart", DontListen: true, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: dir, SyncAlways: true,
	})
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		return nil, errors.New("broker: not ready after 10 s")
	}
	conn, err := stream.Connect("", "quickstart", nats.InProcessServer(s))
	if err != nil {
		s.Shutdown()
		return nil, fmt.Errorf("broker: %w", err)
	}
	return &broker{s, conn}, nil
}

func (b *broker) close() error {
	b.conn.Close()
	b.server.Shutdown()
	b.server.WaitForShutdown()
	return nil
}
