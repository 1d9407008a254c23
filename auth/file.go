package auth

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// A file keeps what is stored of the keys over a restart. It holds hashes, and signing
// secrets as they are encrypted in the meta database: nothing that can be used as a key.
//
//	octopay keys 1 <SHA-256 of the rest, in hex>
//	{"schema":"octopay_meta","read_at_ms":…,"keys":[…]}
//
// Its layout is stored, by one version of the program and for the next. It says itself when
// its keys were read, by the meta database's clock: the times of a file are those of
// whoever copied it.
type file struct {
	Schema string `json:"schema"` // of the meta database: that of another installation is refused
	ReadAt int64  `json:"read_at_ms"`
	Keys   []row  `json:"keys"`
}

const (
	fileBegin = "octopay keys 1 "
	headLen   = len(fileBegin) + 2*sha256.Size + 1
	// fileMax is more than KeysMax keys take.
	fileMax = 128 << 20
	// aheadMax is how far the meta database's clock may be ahead of ours.
	aheadMax = time.Minute
)

func (f file) readAt() time.Time { return time.UnixMilli(f.ReadAt) }

// encode returns the bytes of a file.
func (f file) encode() ([]byte, error) {
	rest, err := json.Marshal(f)
	return append(head(rest), rest...), err
}

func head(rest []byte) []byte { return fmt.Appendf(nil, "%s%x\n", fileBegin, sha256.Sum256(rest)) }

// decode reads what encode made, and refuses everything else.
func decode(text []byte) (f file, err error) {
	if len(text) < headLen || !bytes.Equal(text[:headLen], head(text[headLen:])) {
		return file{}, errors.New("it is damaged, or no file of keys of this version")
	}
	dec := json.NewDecoder(bytes.NewReader(text[headLen:]))
	if err := dec.Decode(&f); err != nil {
		return file{}, errors.New("its JSON is not that of a file of keys")
	}
	if len(f.Keys) > KeysMax {
		return file{}, fmt.Errorf("it has %d keys, and %d is the most", len(f.Keys), KeysMax)
	}
	return f, nil
}

// readFile reads the keys of the meta database called schema from a file, at a time of our
// clock. A file that others can read or replace, or that is damaged, too old, or of
// another database, is an error that says so.
func readFile(path, schema string, now time.Time) (file, error) {
	r, err := os.Open(path)
	if err != nil {
		return file{}, err
	}
	defer func() { _ = r.Close() }()
	info, err := r.Stat()
	switch {
	case err != nil:
		return file{}, err
	case !info.Mode().IsRegular():
		return file{}, fmt.Errorf("%s is no regular file", path)
	case info.Mode().Perm()&0o077 != 0:
		return file{}, fmt.Errorf("%s has mode %04o: others than its owner may use it, so it must have 0600", path, info.Mode().Perm())
	case info.Size() > fileMax:
		return file{}, fmt.Errorf("%s has %d bytes, and %d is the most", path, info.Size(), fileMax)
	}
	if err := private(path); err != nil {
		return file{}, err
	}
	text, err := io.ReadAll(io.LimitReader(r, fileMax))
	if err != nil {
		return file{}, err
	}
	f, err := decode(text)
	if err != nil {
		return file{}, fmt.Errorf("%s: %w", path, err)
	}
	switch age := now.Sub(f.readAt()); {
	case f.Schema != schema:
		return file{}, fmt.Errorf("%s is of the meta database %.64q, and not of %s", path, f.Schema, schema)
	case age >= goodFor:
		return file{}, fmt.Errorf("%s is %s old, and keys are good for %s", path, age.Round(time.Second), goodFor)
	case age < -aheadMax:
		return file{}, fmt.Errorf("%s was written %s in the future by this machine's clock, so its age is not known", path, (-age).Round(time.Second))
	}
	return f, nil
}

// private makes sure that nobody else can put a file of his own in the place of path.
func private(path string) error {
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("the folder of %s has mode %04o: others than its owner may write there, and so replace the keys", path, info.Mode().Perm())
	}
	return nil
}

// writeFile replaces the file at path, which is there before and after as a whole.
func writeFile(path string, f file) (err error) {
	if err := private(path); err != nil {
		return err
	}
	text, err := f.encode()
	if err != nil {
		return err
	}
	// Always the same one, so that what a kill leaves doesn't pile up.
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	w, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	if err == nil {
		err = w.Sync()
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, path); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
