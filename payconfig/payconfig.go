// Package payconfig is the payment config: which merchants may take orders, in which
// currencies, and which channels carry their payments. It is small, read with every
// create and almost never changed, so each process holds all of it in memory, as a
// Snapshot that never changes.
//
// It decides
//   - what a valid config is, and which one text and hash it has (Decode);
//   - whether a merchant may create an order (AllowCreate), and how many calls a second
//     it may make (Rates);
//   - which config is in force: the newest version in the meta database, in each
//     process from the moment on at which its Watch sees it;
//   - who wins when two set it at once (Store.Set).
//
// It leaves to its callers that a create which happened before is answered before any
// policy is asked: config stops new orders and nothing else. A create that is repeated
// after its merchant was disabled still learns that it happened.
//
// # Payments
//
// Config never stops a payment result. Whoever reports one says that a buyer's money
// has moved; to refuse it because its channel isn't listed, or was disabled a moment
// ago, would lose money that is there. Who may report payments is decided by keys, and
// what becomes of the money by the order's state. So Payment has no error to return: it
// says how the channel stands, which is for metrics and for an operator's eyes. A
// disabled channel is one that buyers aren't offered any more; what they paid through it
// before comes in. In the same way a disabled merchant gets no new orders, while its
// payments, refunds and closes go on.
//
// # Before there is a config
//
// An installation without a stored config has Default: version 0, no merchants, no
// channels, and unknown merchants accepted in every currency. That is what Octopay did
// before it knew configs, so an upgrade stops no sale. It risks no money either: an
// order of an unknown merchant is a promise to a buyer, not a payment, and which
// merchant a key may act for is in the key. Every config that is set says itself what
// becomes of unknown merchants; there is no default for it. In production it says
// "refuse".
//
// That there is no config is something that the meta database says. A process that
// could not ask yet has no snapshot at all, and a meta database that is empty where
// there was a config before is taken for lost, not for a wish to accept everybody.
//
// # Versions
//
// Every version is kept, with its text, its hash, who set it and when. A process takes
// over what is the newest in the meta database, also when that is an older one than it
// had: after a restore from a backup all processes agree with what is stored, whether
// they were started before or after. What doesn't validate, or isn't the text of its
// hash, is never in force; the last good one stays.
//
// A process learns of a new version by asking, within two seconds. Pushing it to all of
// them, and waiting until each has it, is a layer above: it compares Version and Hash.
package payconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/octopay/octopay/currency"
)

// Bounds of a config.
const (
	TextMax      = 8 << 20 // bytes of a text
	MerchantsMax = 10_000
	ChannelsMax  = 256
	RateMax      = 1_000_000 // calls a second of one merchant
)

var (
	// ErrMerchantNotFound reports a merchant that the config doesn't list, where it
	// refuses such.
	ErrMerchantNotFound = errors.New("payconfig: the merchant is not known")
	// ErrNotRead reports that no config was read yet, so nobody can say.
	ErrNotRead = errors.New("payconfig: no config was read yet")
	// ErrMerchantDisabled reports a merchant that gets no new orders.
	ErrMerchantDisabled = errors.New("payconfig: the merchant is disabled")
	// ErrCurrencyUnsupported reports a currency that the merchant doesn't take.
	ErrCurrencyUnsupported = errors.New("payconfig: the currency is not enabled for the merchant")
)

// A Merchant is what a config says of one. Two are the same if they are ==.
type Merchant struct {
	BID        int64
	Name       string // for people
	Enabled    bool   // gets new orders
	Currencies currency.Set
	Rate       int    // calls a second, see Rates; 0: it has no limit of its own
	Timezone   string // of its days, by its IANA name
	NotifyURL  string // where its events are sent; "": nowhere
}

// A Channel is what a config says of one. Two are the same if they are ==.
type Channel struct {
	Channel string
	Name    string // for people
	Enabled bool   // is offered to buyers
}

// A Snapshot is a config that is valid. It never changes, and is safe for concurrent
// use.
type Snapshot struct {
	version       int64
	refuseUnknown bool
	merchants     []Merchant       // by bid
	channels      []Channel        // by channel
	byBID         map[int64]int32  // into merchants
	byChannel     map[string]int32 // into channels
	text          string
	hash          string
	unknown       bool // it stands for the one that nobody has read yet
}

// Default returns the config of an installation in which none was set.
func Default() *Snapshot { return build(0, false, nil, nil) }

// NotRead returns what stands for the config until the first is read: it allows no new
// order, for nobody can say who may, and holds nobody to a rate.
func NotRead() *Snapshot {
	s := build(0, true, nil, nil)
	s.unknown = true
	return s
}

// build makes a snapshot of valid parts, and keeps them.
func build(version int64, refuseUnknown bool, merchants []Merchant, channels []Channel) *Snapshot {
	slices.SortFunc(merchants, func(a, b Merchant) int {
		if a.BID < b.BID {
			return -1
		}
		return 1 // no two are equal
	})
	slices.SortFunc(channels, func(a, b Channel) int { return strings.Compare(a.Channel, b.Channel) })
	s := &Snapshot{
		version: version, refuseUnknown: refuseUnknown, merchants: merchants, channels: channels,
		byBID: make(map[int64]int32, len(merchants)), byChannel: make(map[string]int32, len(channels)),
	}
	for i := range merchants {
		s.byBID[merchants[i].BID] = int32(i)
	}
	for i := range channels {
		s.byChannel[channels[i].Channel] = int32(i)
	}
	s.text = string(s.appendText(nil))
	sum := sha256.Sum256([]byte(s.text))
	s.hash = hex.EncodeToString(sum[:])
	return s
}

// at returns the snapshot as that of another version.
func (s *Snapshot) at(version int64) *Snapshot {
	other := *s // nothing in it changes
	other.version = version
	return &other
}

// Version returns the version under which the config is stored, or which its text says
// that it is; 0 for none.
func (s *Snapshot) Version() int64 { return s.version }

// Hash returns the SHA-256 of Text, in hexadecimal. Two configs with one hash say the
// same, whatever their versions are.
func (s *Snapshot) Hash() string { return s.hash }

// RefusesUnknown reports whether merchants that the config doesn't list get no orders.
func (s *Snapshot) RefusesUnknown() bool { return s.refuseUnknown }

// Merchants returns all merchants by bid, in a slice of the caller's own.
func (s *Snapshot) Merchants() []Merchant { return slices.Clone(s.merchants) }

// Channels returns all channels by name, in a slice of the caller's own.
func (s *Snapshot) Channels() []Channel { return slices.Clone(s.channels) }

// Merchant returns what the config says of a merchant. It allocates nothing.
func (s *Snapshot) Merchant(bid int64) (m Merchant, known bool) {
	i, known := s.byBID[bid]
	if !known {
		return Merchant{}, false
	}
	return s.merchants[i], true
}

// Channel returns what the config says of a channel. It allocates nothing.
func (s *Snapshot) Channel(name string) (c Channel, known bool) {
	i, known := s.byChannel[name]
	if !known {
		return Channel{}, false
	}
	return s.channels[i], true
}

// AllowCreate returns nil if a merchant may create a new order in a currency that there
// is; else ErrMerchantNotFound, ErrMerchantDisabled, ErrCurrencyUnsupported or ErrNotRead. It
// allocates nothing. A create that happened before is not asked for here: it is
// answered, whatever the config says now.
func (s *Snapshot) AllowCreate(bid int64, code string) error {
	i, known := s.byBID[bid]
	switch {
	case s.unknown:
		return ErrNotRead
	case !known && s.refuseUnknown:
		return ErrMerchantNotFound
	case !known:
		return nil
	case !s.merchants[i].Enabled:
		return ErrMerchantDisabled
	case !s.merchants[i].Currencies.Has(code):
		return ErrCurrencyUnsupported
	}
	return nil
}

// A Standing is how a payment's channel stands in the config.
type Standing int

// The standings. None of them is a reason to refuse a payment.
const (
	Unlisted Standing = iota // the config doesn't know the channel
	Disabled                 // buyers aren't offered it
	Enabled
)

func (s Standing) String() string {
	switch s {
	case Unlisted:
		return "unlisted"
	case Disabled:
		return "disabled"
	}
	return "enabled"
}

// Payment returns how the channel of a payment result stands. The result is taken in
// any case; see the package's text.
func (s *Snapshot) Payment(channel string) Standing {
	switch c, known := s.Channel(channel); {
	case !known:
		return Unlisted
	case !c.Enabled:
		return Disabled
	}
	return Enabled
}
