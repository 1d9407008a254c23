package boot

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/octopay/octopay/auth"
)

// masterFileMax bounds what is read of a file that holds two lines.
const masterFileMax = 4096

// Masters returns the master keys of signing secrets; nil when none is set.
func (s Shared) Masters() (*auth.Masters, error) {
	text, setting := s.MasterKey, "master_key ("+Prefix+"MASTER_KEY)"
	switch {
	case s.MasterKey != "" && s.MasterKeyFile != "":
		return nil, fmt.Errorf("config: %s and master_key_file are both set; one must be", setting)
	case s.MasterKey == "" && s.MasterKeyFile == "":
		return nil, nil
	case s.MasterKeyFile != "":
		setting = "master_key_file"
		f, err := os.Open(s.MasterKeyFile)
		if err != nil {
			return nil, fmt.Errorf("config: %s: %w", setting, err)
		}
		raw, err := io.ReadAll(io.LimitReader(f, masterFileMax))
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("config: %s: %w", setting, err)
		}
		text = string(raw)
	}
	m, err := auth.ParseMasters(text)
	if err != nil {
		return nil, fmt.Errorf("config: %s: %w", setting, err)
	}
	return m, nil
}
