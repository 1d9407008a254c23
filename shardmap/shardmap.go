// Package shardmap holds the Map: which database owns a slot, and on which server
// that database is. It is pure; reading the map from a file or from the meta
// database, and acting on a newer one, is left to others.
//
// A Map is immutable and complete. Everything that can be wrong with one is found
// by New, so that Locate has no error to return. Of two maps the one with the
// higher epoch is in force; two with one epoch and different hashes are a fault.
package shardmap

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"

	"github.com/octopay/octopay/slot"
	"gopkg.in/yaml.v3"
)

// An Epoch is a map's version, from 1.
type Epoch int64

// A Cluster is one of the two sets of databases.
type Cluster string

const (
	// UID is the cluster that holds every order by its buyer: the truth.
	UID Cluster = "uid"
	// BID is the cluster that holds a copy by merchant: the mirror.
	BID Cluster = "bid"
)

// A Server is one database server. Its name is never given to another server.
type Server struct {
	Name    string `yaml:"name"`
	Address string `yaml:"address"` // host:port
}

// A Placement puts one database of a cluster on a server.
type Placement struct {
	Database int    `yaml:"database"` // 1 … N
	Server   string `yaml:"server"`   // a Server's name
}

// A Spec is what a map file says. It is not checked; New does that.
type Spec struct {
	Epoch   Epoch       `yaml:"epoch"`
	Prefix  string      `yaml:"prefix,omitempty"` // before every schema, stream and subject name
	Servers []Server    `yaml:"servers"`
	Meta    string      `yaml:"meta"` // the server of the meta database
	UID     []Placement `yaml:"uid"`
	BID     []Placement `yaml:"bid"`
}

// A Database is one database of a cluster.
type Database struct {
	Cluster Cluster
	Number  int // 1 … N
	Schema  string
	Server  Server
}

func (d Database) String() string { return d.Schema + "@" + d.Server.Name }

// A Location is where the rows of a key live, in either cluster.
type Location struct {
	Database int // 1 … N
	Table    int // 0 … slot.Tables-1
}

// A Map says where every key lives. It is safe for concurrent use.
type Map struct {
	spec  Spec
	text  []byte
	hash  string
	meta  Database
	uid   []Database // in order of Number
	bid   []Database
	slots [slot.Count]Location
}

var (
	prefixRule = regexp.MustCompile(`^[a-z0-9_]{0,24}$`)
	nameRule   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)
)

// Parse reads the text of a map, one YAML document in the form of Spec; an unknown
// field is an error.
func Parse(text []byte) (*Map, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	var spec Spec
	if err := dec.Decode(&spec); errors.Is(err, io.EOF) {
		return nil, errors.New("shard map: it is empty")
	} else if err != nil {
		return nil, fmt.Errorf("shard map: %w", err)
	}
	// Nobody could say which of two is meant.
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("shard map: there is something after the first YAML document; a map is one document")
	}
	return New(spec)
}

// New builds a Map and reports everything that is wrong with the spec at once.
func New(spec Spec) (*Map, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("shard map: "+format, args...)) }

	if spec.Epoch < 1 {
		fault("epoch is %d; it counts from 1", spec.Epoch)
	}
	if !prefixRule.MatchString(spec.Prefix) {
		fault("prefix must be at most 24 of a-z 0-9 _")
	}
	servers := map[string]Server{}
	addresses := map[string]string{}
	for i, s := range spec.Servers {
		if !nameRule.MatchString(s.Name) {
			fault("servers[%d].name must be 1 to 32 of a-z 0-9 -, and begin with a letter or digit", i)
		}
		if _, dup := servers[s.Name]; dup {
			fault("server %q is listed twice", s.Name)
		}
		if host, port, err := net.SplitHostPort(s.Address); err != nil || host == "" || port == "" {
			fault("servers[%d].address must be host:port", i)
		} else if other, dup := addresses[s.Address]; dup {
			fault("servers %q and %q have one address", other, s.Name)
		}
		servers[s.Name] = s
		addresses[s.Address] = s.Name
	}
	if _, ok := servers[spec.Meta]; !ok {
		fault("meta is on server %q, which is not listed", spec.Meta)
	}
	m := &Map{spec: spec}
	m.meta = Database{Schema: spec.Prefix + "octopay_meta", Server: servers[spec.Meta]}
	place := func(c Cluster, placements []Placement) []Database {
		n := len(placements)
		if !slot.ValidSize(n) {
			fault("the %s cluster has %d databases; it must have 8, 16, 32 or 64", c, n)
			return nil
		}
		dbs := make([]Database, n)
		for _, p := range placements {
			switch {
			case p.Database < 1 || p.Database > n:
				fault("%s database %d is outside 1 … %d", c, p.Database, n)
				continue
			case dbs[p.Database-1].Number != 0:
				fault("%s database %d is placed twice: its slots would have two owners", c, p.Database)
				continue
			}
			s, ok := servers[p.Server]
			if !ok {
				fault("%s database %d is on server %q, which is not listed", c, p.Database, p.Server)
			}
			dbs[p.Database-1] = Database{
				Cluster: c, Number: p.Database, Server: s,
				Schema: fmt.Sprintf("%soctopay_%s_%02d", spec.Prefix, c, p.Database),
			}
		}
		for i, db := range dbs {
			if db.Number == 0 {
				fault("%s database %d is missing: its slots would have no owner", c, i+1)
			}
		}
		return dbs
	}
	m.uid = place(UID, spec.UID)
	m.bid = place(BID, spec.BID)
	if len(spec.UID) != len(spec.BID) {
		fault("the uid cluster has %d databases and the bid cluster %d; both have the same number", len(spec.UID), len(spec.BID))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	for s := range m.slots {
		sl := slot.Slot(s)
		m.slots[s] = Location{Database: sl.Database(len(m.uid)), Table: sl.Table()}
	}
	return m, m.seal()
}

// OneServer returns the spec of epoch 1 of a map whose databases, n in each cluster, are
// all on one server, the meta database too.
func OneServer(s Server, n int) Spec {
	spec := Spec{Epoch: 1, Servers: []Server{s}, Meta: s.Name}
	for d := 1; d <= n; d++ {
		p := Placement{Database: d, Server: s.Name}
		spec.UID, spec.BID = append(spec.UID, p), append(spec.BID, p)
	}
	return spec
}

// seal gives the map its canonical text and hash: the same map has the same hash,
// in whatever order and layout its file lists things.
func (m *Map) seal() error {
	byNumber := func(a, b Placement) int { return a.Database - b.Database }
	m.spec.Servers = slices.SortedFunc(slices.Values(m.spec.Servers), func(a, b Server) int {
		return bytes.Compare([]byte(a.Name), []byte(b.Name))
	})
	m.spec.UID = slices.SortedFunc(slices.Values(m.spec.UID), byNumber)
	m.spec.BID = slices.SortedFunc(slices.Values(m.spec.BID), byNumber)
	text, err := yaml.Marshal(m.spec)
	if err != nil {
		return fmt.Errorf("shard map: %w", err)
	}
	sum := sha256.Sum256(text)
	m.text, m.hash = text, hex.EncodeToString(sum[:])
	return nil
}

// Locate returns where the rows of key live. key must be at least 1. It does not
// allocate.
func (m *Map) Locate(key int64) Location { return m.slots[slot.Of(key)] }

// LocateInfo returns where the order of an id with this shard info and table
// lives. Both must be in range, which a parsed id's are.
func (m *Map) LocateInfo(info, table int) Location {
	return Location{Database: slot.DatabaseOfInfo(info, len(m.uid)), Table: table}
}

// Size returns N, the number of databases in each cluster.
func (m *Map) Size() int { return len(m.uid) }

// Epoch returns the map's version.
func (m *Map) Epoch() Epoch { return m.spec.Epoch }

// Hash returns the SHA-256 of Text, in hex.
func (m *Map) Hash() string { return m.hash }

// Text returns the canonical text, which Parse reads back to an equal map.
func (m *Map) Text() []byte { return slices.Clone(m.text) }

// Prefix stands before the name of every schema, stream and subject.
func (m *Map) Prefix() string { return m.spec.Prefix }

// Meta returns the meta database; its Cluster is empty and its Number 0.
func (m *Map) Meta() Database { return m.meta }

// Databases returns the databases of a cluster in order of number.
func (m *Map) Databases(c Cluster) []Database { return slices.Clone(m.databases(c)) }

// Database returns database number n, 1 … Size, of a cluster.
func (m *Map) Database(c Cluster, n int) Database { return m.databases(c)[n-1] }

func (m *Map) databases(c Cluster) []Database {
	switch c {
	case UID:
		return m.uid
	case BID:
		return m.bid
	}
	panic("shardmap: no cluster " + string(c))
}

// Servers returns the servers that hold databases of a cluster, by name.
func (m *Map) Servers(c Cluster) []Server {
	var out []Server
	for _, s := range m.spec.Servers {
		if slices.ContainsFunc(m.databases(c), func(d Database) bool { return d.Server.Name == s.Name }) {
			out = append(out, s)
		}
	}
	return out
}
