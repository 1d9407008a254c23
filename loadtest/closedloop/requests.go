package closedloop

import (
	"bufio"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/octopay/octopay/loadtest/traffic"
)

// header is what every request says beside its first line and its body.
func header(base *url.URL, key string) string {
	h := "Host: " + base.Host + "\r\n"
	if key != "" {
		h += "Authorization: Bearer " + key + "\r\n"
	}
	return h
}

// write writes n requests of plan, from number first on, into a file for each thread:
// they take turns, so that the numbers that are sent are near each other.
func write(dir string, plan *traffic.Plan, first uint64, n, threads int, header string) error {
	var g errgroup.Group
	for t := range threads {
		g.Go(func() (err error) {
			f, err := os.Create(filepath.Join(dir, "requests."+strconv.Itoa(t+1)))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			w := bufio.NewWriterSize(f, 1<<20)
			var record []byte
			written := 0
			for i := t; i < max(n, threads); i += threads {
				record = appendRequest(record[:0], plan.Request(first+uint64(i)), header)
				if written += len(record); written > bytesMax/threads {
					return fmt.Errorf("closedloop: the requests of a run can have %d GiB: measure for a shorter time", bytesMax>>30)
				}
				fmt.Fprintf(w, "%07d", len(record))
				_, _ = w.Write(record) // Flush says what went wrong
			}
			return w.Flush()
		})
	}
	return g.Wait()
}

// appendRequest appends a request as HTTP/1.1.
func appendRequest(b []byte, r traffic.Request, header string) []byte {
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = append(b, r.Target...)
	b = append(b, " HTTP/1.1\r\n"...)
	b = append(b, header...)
	if r.Body != nil {
		b = append(b, "Content-Type: application/json\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(len(r.Body)), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	return append(b, r.Body...)
}
