package faultproxy

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What a connection says while nothing passes is bounded in packets and in bytes; it goes
// on when something is taken, in order, and ends with its link.
func TestAQueueIsBounded(t *testing.T) {
	for size, most := range map[int]int{
		0: placesMax, 1: placesMax, chunkMax: placesMax, chunkMax + 1: placesMax / 2,
		16 << 20: 2, // the largest packet of MySQL
		64 << 20: 1, // a single one that is larger than all there is passes too
	} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, gone := newQueue(), make(chan struct{})
				packet := make([]byte, size)
				n := 0
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer q.end()
					for q.put(gone, arrival{packet, time.Unix(int64(n), 0)}) {
						n++
					}
				}()
				synctest.Wait()
				if n != most {
					t.Fatalf("%d packets wait, want %d", n, most)
				}
				took := 0
				for a := range q.all() {
					if a.came.Unix() != int64(took) {
						t.Fatalf("packet %d comes as number %d", a.came.Unix(), took)
					}
					took++
					synctest.Wait()
					if took == 3*most {
						break
					}
				}
				if n != took+most {
					t.Errorf("%d packets wait behind %d that were taken, want %d", n-took, took, most)
				}
				close(gone)
				<-ended
				for range q.all() {
				}
			})
		})
	}
}

// A point that there isn't fails the test, arms nothing, and nobody waits for it.
func TestAPointThatThereIsNotFailsTheTest(t *testing.T) {
	said := &sayer{TB: t}
	p := &Proxy{t: said}
	for _, point := range []Point{-1, points} {
		<-p.Arm(point, nil).Done()
		if !strings.Contains(said.text, point.String()) || len(p.armed) != 0 {
			t.Errorf("%s: said %q, %d faults are armed", point, said.text, len(p.armed))
		}
	}
}

type sayer struct {
	testing.TB
	text string
}

func (s *sayer) Errorf(format string, args ...any) { s.text = fmt.Sprintf(format, args...) }
