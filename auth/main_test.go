package auth

import (
	"testing"

	"github.com/octopay/octopay/internal/eventually"
)

func TestMain(m *testing.M) { eventually.Main(m) }
