package boot

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// readFile reads the file of a setting, of at most so many bytes. What is wrong is an error
// that names the setting and the file, and never what is in it.
func readFile(setting, file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("config: %s: %w", setting, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("config: %s: %w", setting, err)
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("config: %s: %s must hold no more than %d bytes", setting, file, most)
	}
	return text, nil
}
