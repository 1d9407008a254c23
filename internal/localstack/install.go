package localstack

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"

	"github.com/octopay/octopay/internal/install"
)

// binaries are the programs of a stack.
type binaries struct {
	mariadbd  string
	firstData string // a data directory as a new server has it
	nats      string
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
		var installDB string
		if b.mariadbd, installDB, err = findMariaDB(ctx, lookFor, o.Install, o.logf); err != nil {
			return b, err
		}
		if b.firstData, err = firstData(ctx, b.mariadbd, installDB, o.logf); err != nil {
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
func findMariaDB(ctx context.Context, look func(string) string, may bool, logf logf) (server, installDB string, err error) {
	found := func() bool {
		server, installDB = look("mariadbd"), look("mariadb-install-db")
		return server != "" && installDB != ""
	}
	if found() {
		return server, installDB, nil
	}
	if !may {
		return "", "", errNoMariaDB
	}
	if err := install.Packages(ctx, found, logf, "mariadb-server-core", "mariadb-client-core"); err != nil {
		return "", "", fmt.Errorf("%w\n%w", errNoMariaDB, err)
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

// firstData makes the data of a new server, once for each mariadbd, in the user's
// cache directory.
func firstData(ctx context.Context, mariadbd, installDB string, logf logf) (string, error) {
	info, err := os.Stat(mariadbd)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(fmt.Sprint(mariadbd, info.Size(), info.ModTime().UnixNano())))
	return cached(ctx, fmt.Sprintf("mariadb-data-%x", sum[:6]), func(path string) error {
		logf("making the data of a new MariaDB server (once)")
		return installData(ctx, installDB, path)
	})
}

// cached returns the path of what make makes there, unless it is there already.
func cached(ctx context.Context, name string, make func(path string) error) (string, error) {
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	l, err := lockFile(ctx, filepath.Join(dir, "lock"), exclusive)
	if err != nil {
		return "", err
	}
	defer l.unlock()
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return path, err
	}
	return path, make(path)
}

// cacheDir is in the user's cache directory, or beside other temporary files for users
// that have none.
func cacheDir() (string, error) {
	if base, err := os.UserCacheDir(); err == nil {
		if dir := filepath.Join(base, "octopay"); os.MkdirAll(dir, 0o700) == nil {
			return dir, nil
		}
	}
	return privateTempDir("octopay-cache-" + strconv.Itoa(os.Geteuid()))
}

// privateTempDir returns a directory with a fixed name among the temporary files,
// where another user could have put one of that name before.
func privateTempDir(name string) (string, error) {
	dir := filepath.Join(os.TempDir(), name)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() || info.Mode() != os.ModeDir|0o700 {
		return "", fmt.Errorf("localstack: %s is not a directory of this user alone", dir)
	}
	return dir, nil
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
	name := fmt.Sprintf("nats-server-%s-%s-%s-%s", version[1], runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return cached(ctx, name, func(path string) error {
		logf("building nats-server %s (once)", version[1])
		if err := goBuild(ctx, root, path+".part", natsModule); err != nil {
			return err
		}
		return os.Rename(path+".part", path)
	})
}

func goBuild(ctx context.Context, root, out, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, pkg)
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("localstack: go build %s: %w\n%s", pkg, err, text)
	}
	return nil
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
