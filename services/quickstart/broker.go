package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
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
func startBroker(dir string, log *slog.Logger) (*broker, error) {
	s, err := server.NewServer(&server.Options{
		ServerName: "quickstart", DontListen: true, NoSigs: true,
		JetStream: true, StoreDir: dir, SyncAlways: true,
	})
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	said := &brokerLog{log: log}
	s.SetLogger(said, false, false)
	s.Start()
	if why := said.fatal.Load(); why != nil {
		s.Shutdown()
		return nil, fmt.Errorf("broker: %s", *why)
	}
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

// A brokerLog keeps why the broker can't start, which it tells only its log, and passes
// on what goes wrong later.
type brokerLog struct {
	log   *slog.Logger
	fatal atomic.Pointer[string]
}

func (l *brokerLog) Fatalf(format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	l.fatal.CompareAndSwap(nil, &why)
}

func (l *brokerLog) Errorf(format string, args ...any) {
	l.log.Error("broker", "error", fmt.Sprintf(format, args...))
}

func (l *brokerLog) Warnf(format string, args ...any) {
	l.log.Info("broker", "warning", fmt.Sprintf(format, args...))
}

func (l *brokerLog) Noticef(string, ...any) {}
func (l *brokerLog) Debugf(string, ...any)  {}
func (l *brokerLog) Tracef(string, ...any)  {}

// makeStream makes the mirror's stream, so that whoever reads it needn't warn of its
// absence before a collector makes it.
func (b *broker) makeStream(ctx context.Context, prefix string) error {
	st, err := stream.New(b.conn, prefix, stream.Config{MaxBytes: streamBytes})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = st.Ensure(ctx)
	return err
}

func (b *broker) close() error {
	b.conn.Close()
	b.server.Shutdown()
	b.server.WaitForShutdown()
	return nil
}
