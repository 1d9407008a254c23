package boot

import (
	"fmt"

	"github.com/octopay/octopay/auth"
)

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
		raw, err := readFile(setting, s.MasterKeyFile, secretMax)
		if err != nil {
			return nil, err
		}
		text = string(raw)
	}
	m, err := auth.ParseMasters(text)
	if err != nil {
		return nil, fmt.Errorf("config: %s: %w", setting, err)
	}
	return m, nil
}
