package console_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/cli/console"
)

// TestFileProgress: without a terminal a long copy is told of once, and with --json every few
// seconds; a short one is not.
func TestFileProgress(t *testing.T) {
	for name, tt := range map[string]struct {
		json bool
		want string
	}{
		"plain": {false, "carboy: it is being copied\n"},
		"json": {true, `{"note":"2 MiB, 2 files copied","reason":"copying"}
{"note":"5 MiB, 5 files copied","reason":"copying"}
{"note":"8 MiB, 8 files copied","reason":"copying"}
`},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			var errs bytes.Buffer
			c := &console.Console{Stderr: &errs, JSON: tt.json, Now: func() time.Time { return now }}
			p := c.NewFileProgress("it is being copied")
			for i := range int64(9) {
				p.Set(i+1, (i+1)<<20)
				now = now.Add(time.Second)
			}
			p.Stop()
			if got := errs.String(); got != tt.want {
				t.Errorf("told %q, want %q", got, tt.want)
			}
		})
	}
}
