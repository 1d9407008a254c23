package httpapi

import (
	"errors"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/httpapi/problem"
)

// Keys say who calls; auth.Keyring does.
type Keys interface {
	// Verify returns whose key a text is, auth.ErrUnauthenticated or auth.ErrUnavailable.
	Verify(text string) (auth.Key, error)
	// VerifySignature makes sure that what a key sent is signed, if it has to be.
	VerifySignature(key auth.Key, h auth.Signature, orderID string, body []byte, now time.Time) error
}

// roles are who may make a call, a bit for each.
type roles uint8

const (
	public   roles = 0 // whoever asks, with or without a key
	app            = roles(1 << auth.App)
	merchant       = roles(1 << auth.Merchant)
	channel        = roles(1 << auth.Channel)
	ops            = roles(1 << auth.Ops)
)

func (r roles) has(role auth.Role) bool { return r&(1<<role) != 0 }

// authenticate finds out whose key was sent.
func (c *call) authenticate() error {
	var key string
	if sent := c.r.Header["Authorization"]; len(sent) == 1 {
		key, _ = auth.Bearer(sent[0])
	}
	var err error
	c.key, err = c.api.config.Keys.Verify(key)
	if errors.Is(err, auth.ErrUnauthenticated) {
		c.w.Header()["Www-Authenticate"] = bearer
	}
	return err
}

var bearer = []string{"Bearer"}

// signed makes sure that a payment result comes from its channel.
func (c *call) signed(body []byte) error {
	return c.api.config.Keys.VerifySignature(c.key, auth.Signature{
		ID: c.once("Webhook-Id"), Timestamp: c.once("Webhook-Timestamp"), Signature: c.once("Webhook-Signature"),
	}, c.params[0], body, time.Now())
}

// once returns the value of a header that was sent once; "" else: of two, what stands
// before us may have looked at the other one.
func (c *call) once(name string) string {
	if sent := c.r.Header[name]; len(sent) == 1 {
		return sent[0]
	}
	return ""
}

// own refuses what a merchant says of another merchant.
func (c *call) own(bid int64) error {
	if c.key.Role == auth.Merchant && c.key.BID != bid {
		return &problem.Problem{Code: problem.ScopeDenied}
	}
	return nil
}

// sees reports whether an order of this merchant is there for who calls.
func (c *call) sees(bid int64) bool { return c.key.Role != auth.Merchant || c.key.BID == bid }

// overRate is the answer to a call over the rate of its merchant. It is made once: that a
// merchant sends too much must cost little.
var overRate = &problem.Problem{Code: problem.RateLimited}

// withinRate counts a call for its merchant, and refuses it when it is over that one's
// rate. A merchant's call counts for the merchant, whatever it is. An app's counts for the
// merchant that it names, bid; for 0 it names none. Calls of channels and operators count
// for nobody: money that came is recorded, and whoever looks at a merchant in trouble
// takes nothing from it.
func (c *call) withinRate(bid int64) error {
	switch c.key.Role {
	case auth.Merchant:
		bid = c.key.BID
	case auth.App:
	default:
		return nil
	}
	if within := c.api.config.WithinRate; bid != 0 && within != nil && !within(bid) {
		return overRate
	}
	return nil
}

// mayRefund refuses keys of an app that weren't made to refund.
func (c *call) mayRefund() error {
	if !c.key.Refunds {
		return &problem.Problem{Code: problem.ScopeDenied}
	}
	return nil
}
