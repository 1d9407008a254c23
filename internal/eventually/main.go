package eventually

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// Main runs a package's tests, and ends the process. It fails when a goroutine outlives
// them: not those that are about to end, for which goleak alone waits a second or so, and
// then says of a busy machine that it leaks.
func Main(m interface{ Run() int }, of ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := leaks(of...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks returns what still runs when it had time enough to end.
func leaks(of ...goleak.Option) (err error) {
	for end := time.Now().Add(Patience / 3); ; {
		if err = goleak.Find(of...); err == nil || time.Now().After(end) {
			return err
		}
	}
}
