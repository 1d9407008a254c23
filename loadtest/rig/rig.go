// Package rig starts Octopay for a load test: real engines with the durable settings of
// production, orderd and syncerd as they are shipped, and the baselines, each as a
// process of its own on a free loopback port, all with their data and logs in one
// directory. It decides what runs and how it is ended, and measures what the processes
// use. What is sent to them is left to the generators.
//
// Nothing of it outlives the process that started it: the kernel ends the children with
// their parent, also when that is killed.
package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/loadtest/baseline"
	"github.com/octopay/octopay/loadtest/proc"
	"github.com/octopay/octopay/shardmap"
)

// DatabasesDefault is the default of Config.Databases.
const DatabasesDefault = 8

// A Config says what runs. The zero value is one orderd over eight databases in each
// cluster, one MariaDB server for each cluster, in a temporary directory.
type Config struct {
	Dir        string // of data, logs and programs, which stay there; "": a temporary one, removed by Close
	Databases  int    // of each cluster; DatabasesDefault
	BufferPool string // of each MariaDB server, such as 4G; 1G
	Syncerd    bool   // one; see also StartSyncerd
	Pprof      bool   // profiles on the ops ports
	Pool       int    // connections of direct to each server; baseline.PoolDefault
}

// A Rig is a running stack. Its methods may be called from several goroutines.
type Rig struct {
	Engines []Engine // the MariaDB servers and what makes them durable

	c       Config
	dir     string
	release func() error // removes dir; nil: it stays
	log     func(string)
	stack   *localstack.Stack
	cluster *cluster.Cluster
	environ []string
	key     string

	mu    sync.Mutex
	procs []*process // that run, in the order of their start
}

// Start builds the programs and starts everything. log is told what takes long; it may
// be nil.
func Start(ctx context.Context, c Config, log func(string)) (_ *Rig, err error) {
	if log == nil {
		log = func(string) {}
	}
	if c.BufferPool == "" {
		c.BufferPool = "1G"
	}
	r := &Rig{c: c, dir: c.Dir, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	stack := localstack.Options{
		Databases: c.Databases, Install: true, Log: log,
		Args: []string{"--innodb-buffer-pool-size=" + c.BufferPool},
	}
	if r.dir == "" {
		if r.dir, r.release, err = localstack.TempDir("octopay-load"); err != nil {
			return nil, err
		}
	} else {
		if r.dir, err = filepath.Abs(r.dir); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(r.dir, 0o700); err != nil {
			return nil, err
		}
		stack.Dir = filepath.Join(r.dir, "stack")
	}
	log("building orderd and syncerd")
	if err := build(ctx, r.dir); err != nil {
		return nil, err
	}
	log("starting MariaDB and NATS")
	if r.stack, err = localstack.Start(ctx, stack); err != nil {
		return nil, err
	}
	r.cluster = cluster.Open(r.stack.Map, cluster.Config{User: r.stack.User, Password: r.stack.Password})
	if r.Engines, err = engines(ctx, r.stack.Map, cluster.Config{User: r.stack.User, Password: r.stack.Password}); err != nil {
		return nil, err
	}
	if r.environ, err = r.environment(); err != nil {
		return nil, err
	}
	made, err := auth.NewStore(r.cluster.Meta(), nil).Create(ctx, auth.Spec{Role: auth.App, Refunds: true}, "loadtest")
	if err != nil {
		return nil, err
	}
	r.key = made.Text
	if err := r.start(ctx, "orderd", filepath.Join(r.dir, "orderd"), nil, "api", "ops"); err != nil {
		return nil, err
	}
	if c.Syncerd {
		if err := r.StartSyncerd(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Key is the key of an app, for orderd and all baselines.
func (r *Rig) Key() string { return r.key }

const module = "github.com/octopay/octopay"

// build builds the production programs into dir.
func build(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), module+"/services/orderd", module+"/services/syncerd")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("rig: go build: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// environment returns the settings of all programs. None of ours comes from outside: a
// run measures what it says.
func (r *Rig) environment() ([]string, error) {
	file := filepath.Join(r.dir, "map.yaml")
	if err := os.WriteFile(file, r.stack.Map.Text(), 0o600); err != nil {
		return nil, err
	}
	environ := slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "OCTOPAY_") })
	return append(environ,
		"OCTOPAY_MAP_FILE="+file, "OCTOPAY_DB_USER="+r.stack.User, "OCTOPAY_DB_PASSWORD="+r.stack.Password,
		"OCTOPAY_NATS_URL="+r.stack.NATSURL, "OCTOPAY_ADDR=127.0.0.1:0", "OCTOPAY_OPS_ADDR=127.0.0.1:0",
		fmt.Sprintf("OCTOPAY_PPROF=%t", r.c.Pprof),
		fmt.Sprintf("%s=%d", baseline.VariablePool, cmp.Or(r.c.Pool, baseline.PoolDefault))), nil
}

// StartSyncerd starts syncerd, which then carries into the mirror what isn't there yet.
func (r *Rig) StartSyncerd(ctx context.Context) error {
	return r.start(ctx, "syncerd", filepath.Join(r.dir, "syncerd"), nil, "ops")
}

// StopSyncerd ends syncerd.
func (r *Rig) StopSyncerd() error {
	var errs []error
	for _, p := range r.running("syncerd") {
		errs = append(errs, r.stop(p))
	}
	return errors.Join(errs...)
}

// running returns the processes of a program.
func (r *Rig) running(program string) (out []*process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.procs {
		if p.program == program {
			out = append(out, p)
		}
	}
	return out
}

// start starts a program and returns when it is ready; it logs that it listens at each
// of the listeners.
func (r *Rig) start(ctx context.Context, program, file string, args []string, listeners ...string) error {
	p, err := run(program, file, args, r.environ, filepath.Join(r.dir, program+".log"))
	if err != nil {
		return err
	}
	if err := p.await(ctx, listeners); err != nil {
		return errors.Join(err, p.end())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.procs = append(r.procs, p)
	return nil
}

// stop ends a process.
func (r *Rig) stop(p *process) error {
	r.mu.Lock()
	r.procs = slices.DeleteFunc(r.procs, func(q *process) bool { return p == q })
	r.mu.Unlock()
	return p.end()
}

// URL returns where orderd serves the API.
func (r *Rig) URL() string { return r.running("orderd")[0].url("api") }

// Ops returns the base URL of the ops port of each process of a program: orderd or
// syncerd.
func (r *Rig) Ops(program string) (urls []string) {
	for _, p := range r.running(program) {
		urls = append(urls, p.url("ops"))
	}
	return urls
}

// Cluster returns the handles of all databases. Close closes them.
func (r *Rig) Cluster() *cluster.Cluster { return r.cluster }

// The programs in Pids that are neither Octopay's nor a baseline.
const (
	Truth  = "mariadbd"        // the servers of the uid cluster
	Mirror = "mariadbd-mirror" // those of the bid cluster
	Broker = "nats-server"
)

// Pids returns the process ids that run now, by program.
func (r *Rig) Pids() map[string][]int {
	pids := r.expected()
	for program, of := range pids {
		of = slices.DeleteFunc(of, func(pid int) bool { _, err := proc.CPU(pid); return err != nil })
		if pids[program] = of; len(of) == 0 {
			delete(pids, program)
		}
	}
	return pids
}

// Gone returns the programs that should run, and of which a process doesn't.
func (r *Rig) Gone() (programs []string) {
	for program, of := range r.expected() {
		if _, err := proc.CPU(of...); err != nil {
			programs = append(programs, program)
		}
	}
	slices.Sort(programs)
	return programs
}

// Idle reports whether orderd has no request under way, at two looks, and so writes
// nothing.
func (r *Rig) Idle(ctx context.Context) bool {
	for look := range 2 {
		if look > 0 {
			select {
			case <-time.After(100 * time.Millisecond): // what is on its way has arrived then
			case <-ctx.Done():
				return false
			}
		}
		for _, ops := range r.Ops("orderd") {
			m, err := Metrics(ctx, ops)
			const underWay = "octopay_http_requests_in_flight"
			if err != nil || m[underWay] == nil || Sum(m, underWay) > 0 {
				return false
			}
		}
	}
	return true
}

// expected returns the process ids of all that was started and wasn't stopped, by program;
// 0 is of an engine that has ended by itself.
func (r *Rig) expected() map[string][]int {
	pids := map[string][]int{}
	add := func(program, server string) { pids[program] = append(pids[program], r.stack.Server(server).Pid()) }
	for _, s := range r.stack.Map.Servers(shardmap.UID) {
		add(Truth, s.Name)
	}
	for _, s := range r.stack.Map.Servers(shardmap.BID) {
		add(Mirror, s.Name)
	}
	add(Broker, "nats")
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.procs {
		pids[p.program] = append(pids[p.program], p.pid())
	}
	return pids
}

// Quiet waits until the engines have done what an earlier run left to them, such as
// writing pages: until together they use less than a twentieth of a CPU, but no longer
// than 3 s.
func (r *Rig) Quiet(ctx context.Context) {
	const every, share = 250 * time.Millisecond, 20
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	pids := r.Pids()
	engines := slices.Concat(pids[Truth], pids[Mirror], pids[Broker])
	for last := time.Duration(-1); ; {
		used, err := proc.CPU(engines...)
		if err != nil || last >= 0 && used-last < every/share {
			return
		}
		last = used
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends everything, each in its own orderly way, the last that was started first,
// and removes what isn't to stay.
func (r *Rig) Close() error {
	var errs []error
	r.mu.Lock()
	procs := slices.Clone(r.procs)
	r.mu.Unlock()
	for _, p := range slices.Backward(procs) {
		errs = append(errs, r.stop(p))
	}
	if r.cluster != nil {
		errs = append(errs, r.cluster.Close())
		r.cluster = nil
	}
	if r.stack != nil {
		errs = append(errs, r.stack.Close())
		r.stack = nil
	}
	if r.release != nil {
		errs = append(errs, r.release())
		r.release = nil
	}
	return errors.Join(errs...)
}

// readyWithin is how long a program may take until it is ready.
const readyWithin = 60 * time.Second
