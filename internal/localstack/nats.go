package localstack

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsConf: streams reserve their MaxBytes, and those of many tests together can be
// more than the disk has; what they really hold is little.
const natsConf = `server_name: localstack
host: %q
port: %s
log_file: %q
jetstream {
  store_dir: %q
  sync_interval: always
  max_mem: 1GB
  max_file: 4TB
}
`

// A natsServer is what is needed to start NATS with JetStream. Its directory holds
// data/, nats.conf and server.log.
type natsServer struct {
	bin     binaries
	dir     string
	address string
}

func (n natsServer) server() *Server {
	return &Server{
		name: "nats", address: n.address, logFile: filepath.Join(n.dir, "server.log"),
		command: n.command, ready: n.ready,
	}
}

func (n natsServer) url() string { return "nats://" + n.address }

func (n natsServer) prepare() error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(n.address)
	if err != nil {
		return err
	}
	conf := fmt.Sprintf(natsConf,
		host, port, filepath.Join(n.dir, "server.log"), filepath.Join(n.dir, "data"))
	return os.WriteFile(filepath.Join(n.dir, "nats.conf"), []byte(conf), 0o600)
}
func (n natsServer) command() *exec.Cmd {
	cmd := exec.Command(n.bin.nats, "-c", filepath.Join(n.dir, "nats.conf"))
	cmd.Dir = n.dir
	return cmd
}

func (n natsServer) ready(ctx context.Context) error {
	nc, err := nats.Connect(n.url(), nats.Timeout(30*time.Second), nats.NoReconnect())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err = js.AccountInfo(ctx)
	return err
}

// dropStreams deletes the streams, key-value buckets included, whose name begins
// with prefix.
func dropStreams(ctx context.Context, url, prefix string) error {
	nc, err := nats.Connect(url, nats.Timeout(30*time.Second), nats.NoReconnect())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if strings.HasPrefix(strings.TrimPrefix(name, "KV_"), prefix) {
			if err := js.DeleteStream(ctx, name); err != nil {
				return err
			}
		}
	}
	return names.Err()
}
