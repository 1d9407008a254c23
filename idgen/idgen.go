// Package idgen makes and reads order ids.
//
//	1 57 7 0123456789012345678     23 decimal digits
//	| |  | +- snowflake, 63 bits, 19 digits, zero-padded:
//	| |  |    41 bits ms since Epoch, 10 bits worker, 12 bits sequence
//	| |  +--- table, uid % 10
//	| +------ shard info, (uid / 10) % 64 + 1, two digits
//	+-------- version
//
// The digits before the snowflake say where the order lives, at every cluster
// size. The stored primary key is the snowflake alone.
//
// A Generator does no I/O and reads no wall clock. Which worker number it may use,
// and up to what time, is decided by its caller (see package lease). What it promises
// is that the snowflakes of one number rise, begin no earlier than the time at which
// the number was acquired, and stay below the time at which its lease ends.
package idgen

import (
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/octopay/octopay/slot"
)

// The layout. All of it is part of the stored format.
const (
	Version     = 1
	Digits      = 23
	WorkerBits  = 10
	SeqBits     = 12
	Workers     = 1 << WorkerBits // worker numbers are 0 … Workers-1
	PerMilli    = 1 << SeqBits    // ids of one worker in one ms
	timeShift   = WorkerBits + SeqBits
	maxTicks    = 1<<41 - 1
	snowflakeAt = 4 // index of the snowflake's first digit
)

var (
	// Epoch is the time of tick 0.
	Epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	// End is the first time that the layout cannot express, 2094-09-07.
	End = Epoch.Add((maxTicks + 1) * time.Millisecond)
)

// An ID is an order id. Only Parse, Make and a Generator make valid ones; the zero
// value is none.
type ID struct {
	info      uint8
	table     uint8
	snowflake int64
}

// Make returns the id of the order of uid, at least 1, that is stored under
// snowflake, at least 0.
func Make(uid, snowflake int64) ID {
	s := slot.Of(uid)
	return ID{info: uint8(s.Info()), table: uint8(s.Table()), snowflake: snowflake}
}

// Snowflake returns the stored primary key.
func (id ID) Snowflake() int64 { return id.snowflake }

// Info returns the shard info, 1 … 64.
func (id ID) Info() int { return int(id.info) }

// Table returns the table digit, 0 … 9.
func (id ID) Table() int { return int(id.table) }

// Time returns when the id was made, in ms; it is the order's created_at.
func (id ID) Time() time.Time { return SnowflakeTime(id.snowflake) }

// Worker returns the worker number.
func (id ID) Worker() int { return int(id.snowflake >> SeqBits & (Workers - 1)) }

// Seq returns the number of the id among its worker's in its ms.
func (id ID) Seq() int { return int(id.snowflake & (PerMilli - 1)) }

// Of reports whether the id's shard info and table are those of uid. An id whose
// parts disagree with the row stored under its snowflake names no order.
func (id ID) Of(uid int64) bool { return uid > 0 && id == Make(uid, id.snowflake) }

// SnowflakeTime returns the time in a snowflake.
func SnowflakeTime(snowflake int64) time.Time {
	return Epoch.Add(time.Duration(snowflake>>timeShift) * time.Millisecond)
}

// FirstAt returns the smallest snowflake of time t, cut to ms. Times before Epoch
// give 0, times from End on the largest snowflake.
func FirstAt(t time.Time) int64 {
	switch {
	case t.Before(Epoch):
		return 0
	case !t.Before(End):
		return 1<<63 - 1
	}
	return t.Sub(Epoch).Milliseconds() << timeShift
}

// AppendTo appends the 23 digits. It does not allocate when dst has room.
func (id ID) AppendTo(dst []byte) []byte {
	dst = append(dst, '0'+Version, '0'+id.info/10, '0'+id.info%10, '0'+id.table)
	n := len(dst)
	dst = append(dst, "0000000000000000000"...)
	for v, i := uint64(id.snowflake), len(dst)-1; i >= n; i-- {
		dst[i] = '0' + byte(v%10)
		v /= 10
	}
	return dst
}

// String returns the 23 digits.
func (id ID) String() string {
	var buf [Digits]byte
	return string(id.AppendTo(buf[:0]))
}

// ErrInvalid is wrapped by every error of Parse.
var ErrInvalid = errors.New("not an order id")

// Parse reads the 23 digits; the error says what is wrong with them. Whether an
// order has that id is another question.
func Parse(s string) (ID, error) {
	if len(s) != Digits {
		if n := utf8.RuneCountInString(s); n != Digits {
			return ID{}, fmt.Errorf("%w: it has %d characters, an id has %d digits", ErrInvalid, n, Digits)
		}
	}
	n := 0
	for _, c := range s {
		if n++; c < '0' || c > '9' {
			return ID{}, fmt.Errorf("%w: character %d is not a digit", ErrInvalid, n)
		}
	}
	if s[0] != '0'+Version {
		return ID{}, fmt.Errorf("%w: the version (digit 1) is %c; the only version is %d", ErrInvalid, s[0], Version)
	}
	info := int(s[1]-'0')*10 + int(s[2]-'0')
	if info < 1 || info > slot.MaxDatabases {
		return ID{}, fmt.Errorf("%w: the shard info (digits 2-3) is %02d; it is 01 to %d", ErrInvalid, info, slot.MaxDatabases)
	}
	snowflake, err := strconv.ParseInt(s[snowflakeAt:], 10, 64)
	if err != nil {
		return ID{}, fmt.Errorf("%w: the snowflake (digits 5-23) is above 63 bits", ErrInvalid)
	}
	return ID{info: uint8(info), table: s[3] - '0', snowflake: snowflake}, nil
}
