package eventually

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { Main(m) }

// A goroutine that ends later than goleak looks is none that outlives its test.
func TestWhatIsAboutToEndIsNoLeak(t *testing.T) {
	was := goleak.IgnoreCurrent()
	go func() { <-time.After(3 * time.Second) }()
	if err := leaks(was); err != nil {
		t.Error(err)
	}
}
