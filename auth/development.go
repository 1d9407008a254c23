package auth

import (
	"crypto/rand"
	"crypto/sha256"
)

// developmentKeys are the same everywhere, so they are good only where nobody else can
// call. The merchant's bid is 1001.
var developmentKeys = []struct {
	text string
	key  Key
}{
	{"dev-app", Key{Role: App, Refunds: true}},
	{"dev-merchant-1001", Key{Role: Merchant, BID: 1001, Refunds: true}},
	{"dev-channel", Key{Role: Channel}},
	{"dev-ops", Key{Role: Ops}},
}

// Development returns a keyring for trying Octopay out, and the texts of its keys: one of
// an app that may refund, of merchant 1001, of a channel that doesn't sign, and of ops, in
// this order. They are good for ever, in this process.
//
// loopback says that only this machine can call; then the keys are dev-app,
// dev-merchant-1001, dev-channel and dev-ops. Otherwise they are random ones. No other
// keyring accepts either.
func Development(loopback bool) (*Keyring, []string) {
	s := &snapshot{list: &list{keys: map[string]*entry{}}, fixed: true}
	var texts []string
	for _, d := range developmentKeys {
		text := d.text
		if !loopback {
			_, text = newText(d.key.Role)
		}
		id, _ := idOf(text)
		d.key.ID = id
		s.keys[id] = &entry{key: d.key, hash: sha256.Sum256([]byte(text))}
		texts = append(texts, text)
	}
	k := &Keyring{}
	k.snapshot.Store(s)
	return k, texts
}

// newText returns a new key and its id.
func newText(r Role) (id, text string) {
	random := func(length int) string {
		b := make([]byte, length)
		_, _ = rand.Read(b) // never fails
		for i := range b {
			b[i] = lowBase32[b[i]%32]
		}
		return string(b)
	}
	id = random(idLen)
	return id, keyBegin + r.String() + "_" + id + "_" + random(secretLen)
}
