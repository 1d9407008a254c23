// Package dberr says what an error of database/sql and of the MySQL driver means
// for whoever sent the statement: may it be sent again, is its outcome known, is
// one row to blame or the whole server.
//
// It decides by the kind of the error alone and is pure. Whoever knows more, such
// as that the error arrived after the COMMIT was sent, says so with As. What to do
// about a class is left to the caller; package lane does it for writes.
//
// The rule behind the classes: an error packet of the server is an answer, so the
// statement is over and the rest of its packet did not run. Anything else that
// happens after bytes were sent is no answer, and the outcome is unknown. The MySQL
// driver returns driver.ErrBadConn only when it sent nothing.
package dberr

import (
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"

	"github.com/go-sql-driver/mysql"
)

// A Class is what an error means for the statement, and so what its sender does
// next.
type Class int

const (
	// None means that there is no error.
	None Class = iota
	// NotSent means that no byte of the statement left this process. Any connection
	// may be used for the next try.
	NotSent
	// Duplicate means that a unique key is taken.
	Duplicate
	// Retryable means that a lock was not got, and nothing of the transaction will
	// be kept once it is rolled back. The same transaction may work now.
	Retryable
	// Stale means that the database obeys another epoch than ours, or isn't the one that
	// our map says: the guard of a packet refused itself, or that of a connection did.
	// Nothing is written with this map.
	Stale
	// ReadOnly means that the server takes no writes: it was demoted, or its disk is
	// full. Nothing of the statement is kept.
	ReadOnly
	// Missing means that the schema or the table isn't there, or isn't there for us: the
	// statement is right, and its database is away.
	Missing
	// TooBig means that the packet is larger than the server takes; nothing of it
	// ran. Parts of it may fit.
	TooBig
	// Refused means that the server refused the statement itself; as it is it will
	// be refused again.
	Refused
	// Unknown means that whether the statement ran, or will yet run, isn't known.
	Unknown
)

var names = [...]string{"none", "not sent", "duplicate", "retryable", "stale epoch", "read-only", "missing", "too big", "refused", "unknown"}

func (c Class) String() string {
	if c >= 0 && int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("class(%d)", int(c))
}

// Numbers of MariaDB's errors that mean more than "refused".
const (
	tooManyConnections  = 1040 // to a new connection, instead of a greeting
	accessDenied        = 1045 // the same
	hostBlocked         = 1129 // the same
	hostNotAllowed      = 1130 // the same
	tooManyOfUser       = 1203 // the same
	duplicateEntry      = 1062
	recordChanged       = 1020
	lockWaitTimeout     = 1205
	deadlock            = 1213
	subqueryRows        = 1242 // how a packet's epoch guard fails
	optionPrevents      = 1290 // --read-only
	readOnlyTransaction = 1792
	readOnlyMode        = 1836
	diskFull            = 1021
	recordFileFull      = 1114 // no room for a table, as InnoDB says it
	writeFailed         = 1026 // such as the binlog's, at a COMMIT
	databaseDenied      = 1044
	noSuchDatabase      = 1049
	tableDenied         = 1142
	noSuchTable         = 1146
	noSuchTableInEngine = 1932
	packetTooLarge      = 1153
	serverShutdown      = 1053
	queryInterrupted    = 1317 // KILL QUERY; may hit a COMMIT
	connectionKilled    = 1927
	statementTimeout    = 1969

	// More that an account meets.
	columnDenied     = 1143
	privilegeMissing = 1227
	authUnknown      = 1251
	routineDenied    = 1370
	pluginMissing    = 1524
	noPasswordUser   = 1698
	accountLocked    = 4151
)

// Of returns the class of err.
func Of(err error) Class {
	if err == nil {
		return None
	}
	var known *Error
	if errors.As(err, &known) {
		return known.Class
	}
	var said *mysql.MySQLError
	if errors.As(err, &said) {
		return ofNumber(said.Number)
	}
	switch {
	case isAny(err, mysql.ErrPktTooLarge):
		return TooBig // found before writing
	case isAny(err, driver.ErrBadConn, sql.ErrConnDone, mysql.ErrBusyBuffer):
		return NotSent
	case isAny(err, mysql.ErrNoTLS, mysql.ErrCleartextPassword, mysql.ErrNativePassword, mysql.ErrOldPassword,
		mysql.ErrUnknownPlugin, mysql.ErrOldProtocol):
		return NotSent // while logging in
	}
	var untrusted *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	if errors.As(err, &untrusted) || errors.As(err, &noTLS) {
		return NotSent // while logging in too
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return NotSent
	}
	// mysql.ErrInvalidConn, io.EOF, a net.OpError of a read or write, a context's
	// end, packets out of step, and whatever a later driver invents.
	return Unknown
}

func ofNumber(n uint16) Class {
	switch n {
	case tooManyConnections, accessDenied, hostBlocked, hostNotAllowed, tooManyOfUser:
		return NotSent
	case duplicateEntry:
		return Duplicate
	case recordChanged, lockWaitTimeout, deadlock:
		return Retryable
	case subqueryRows:
		return Stale
	case optionPrevents, readOnlyTransaction, readOnlyMode, diskFull, recordFileFull:
		return ReadOnly
	case databaseDenied, noSuchDatabase, tableDenied, noSuchTable, noSuchTableInEngine:
		return Missing
	case packetTooLarge:
		return TooBig
	case serverShutdown, queryInterrupted, connectionKilled, statementTimeout, writeFailed:
		return Unknown
	}
	return Refused
}

// Denied reports whether the server refuses the account, or what the account has no right
// to: it does so until somebody changes the account, its password or its rights.
func Denied(err error) bool {
	var said *mysql.MySQLError
	if !errors.As(err, &said) {
		return false
	}
	switch said.Number {
	case accessDenied, hostNotAllowed, databaseDenied, tableDenied, columnDenied, privilegeMissing, routineDenied,
		authUnknown, pluginMissing, noPasswordUser, accountLocked:
		return true
	}
	return false
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// An Error is an error with its class. Its text never holds the server's message,
// which quotes values, so it may be logged.
type Error struct {
	Class Class
	Err   error
}

// Error names the class, and the server's error number where there is one, with what
// it means in words of ours.
func (e *Error) Error() string {
	var said *mysql.MySQLError
	if errors.As(e.Err, &said) {
		return fmt.Sprintf("%s: %s", e.Class, Words(said.Number))
	}
	return fmt.Sprintf("%s: %v", e.Class, e.Err)
}

// Words returns what a server's error number means, in words of ours, and the number.
func Words(number uint16) string {
	if w := words[number]; w != "" {
		return fmt.Sprintf("%s (server error %d)", w, number)
	}
	return fmt.Sprintf("server error %d", number)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// As returns err with a class that the caller knows better than the error does.
func As(c Class, err error) error { return &Error{Class: c, Err: err} }

// Clean returns err with its class and a text without the server's message. nil
// stays nil.
func Clean(err error) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	return As(Of(err), err)
}
