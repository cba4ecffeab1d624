package planted

import (
	"os"
	"testing"
)

// TestPlanted says that an attack succeeded, unless the file CARBOY_PLANTED is there, which
// it makes.
func TestPlanted(t *testing.T) {
	name := os.Getenv("CARBOY_PLANTED")
	if _, err := os.Stat(name); err == nil {
		return
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Error("finding: a way out")
}
