package planted

import (
	"os"
	"testing"
)

// TestPlanted fails until the file CARBOY_PLANTED is there, and makes it.
func TestPlanted(t *testing.T) {
	t.Run("sub", func(t *testing.T) {
		name := os.Getenv("CARBOY_PLANTED")
		if _, err := os.Stat(name); err == nil {
			return
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Error("for once")
	})
}
