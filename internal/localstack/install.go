package localstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
)

// binaries are the programs of a stack.
type binaries struct {
	mariadbd, installDB string
	nats                string
}

const natsModule = "github.com/nats-io/nats-server/v2"

// errNoMariaDB tells how to get what is missing.
var errNoMariaDB = errors.New(`localstack: no mariadbd here. Either install it (no service is started):
    sudo apt-get update && sudo apt-get install -y --no-install-recommends mariadb-server-core mariadb-client-core
or name servers that exist, with a user that may do everything:
    export ` + envUID + `=host:port ` + envBID + `=host:port ` + envNATS + `=nats://host:port ` + envUser + `=… ` + envPassword + `=…`)

// find finds or makes the programs that o needs. It takes long only the first time:
// then it can install MariaDB, and build NATS.
func find(ctx context.Context, o Options) (b binaries, err error) {
	if o.needs(UID) || o.needs(BID) || o.needs(Meta) {
		if b.mariadbd, b.installDB, err = findMariaDB(ctx, lookFor, o.Install, o.logf); err != nil {
			return b, err
		}
	}
	if o.needs(NATS) {
		if b.nats, err = buildNATS(ctx, o.logf); err != nil {
			return b, err
		}
	}
	return b, nil
}

// findMariaDB finds the server and the program that makes its first data with look, and
// installs them first where that is possible.
func findMariaDB(ctx context.Context, look func(string) string, install bool, logf logf) (server, installDB string, err error) {
	found := func() bool {
		server, installDB = look("mariadbd"), look("mariadb-install-db")
		return server != "" && installDB != ""
	}
	if found() {
		return server, installDB, nil
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil || !install || os.Geteuid() != 0 {
		return "", "", errNoMariaDB
	}
	l, err := lockFile(ctx, filepath.Join(os.TempDir(), "octopay-install.lock"), exclusive)
	if err != nil {
		return "", "", err
	}
	defer l.unlock()
	if found() { // somebody else was faster
		return server, installDB, nil
	}
	logf("installing mariadb-server-core and mariadb-client-core (once)")
	for _, args := range [][]string{
		{"-q", "update"},
		{"-q", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends", "mariadb-server-core", "mariadb-client-core"},
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("%w\napt-get %v: %w\n%s", errNoMariaDB, args, err, out)
		}
	}
	if !found() {
		return "", "", errNoMariaDB
	}
	return server, installDB, nil
}

// lookFor finds a program on the PATH, or where it is for users whose PATH has no
// sbin.
func lookFor(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}

// buildNATS builds the nats-server of go.mod's version, once for each version and
// compiler, into the user's cache directory.
func buildNATS(ctx context.Context, logf logf) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	version := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(natsModule) + ` (v\S+)`).FindSubmatch(mod)
	if version == nil {
		return "", fmt.Errorf("localstack: go.mod requires no %s", natsModule)
	}
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("nats-server-%s-%s-%s-%s", version[1], runtime.Version(), runtime.GOOS, runtime.GOARCH))
	l, err := lockFile(ctx, filepath.Join(dir, "nats-server.lock"), exclusive)
	if err != nil {
		return "", err
	}
	defer l.unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	logf("building nats-server %s (once)", version[1])
	if err := goBuild(ctx, root, path+".part", natsModule); err != nil {
		return "", err
	}
	return path, os.Rename(path+".part", path)
}

func goBuild(ctx context.Context, root, out, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, pkg)
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("localstack: go build %s: %w\n%s", pkg, err, text)
	}
	return nil
}

func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil { // no HOME
		base = filepath.Join(os.TempDir(), fmt.Sprintf("octopay-cache-%d", os.Geteuid()))
	}
	dir := filepath.Join(base, "octopay")
	return dir, os.MkdirAll(dir, 0o700)
}

// moduleRoot finds the directory of this module's go.mod, above the working
// directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && regexp.MustCompile(`(?m)^module github\.com/octopay/octopay$`).Match(mod) {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("localstack: run this inside the source of Octopay: it builds programs from it")
		}
		dir = filepath.Dir(dir)
	}
}
