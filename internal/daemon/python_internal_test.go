package daemon

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWarnOfPython(t *testing.T) {
	dir := func(t *testing.T, names ...string) string {
		d := t.TempDir()
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(d, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}
	tests := []struct {
		name   string
		image  string
		shared bool
		has    []string
		want   string // "": nothing is said
	}{
		{"python3-alone", "host", false, []string{"python3"}, ""},
		{"neither", "host", false, nil, "has none: name an image"},
		{"both", "host", false, []string{"python3", "python"}, ""},
		{"another-image", "docker.io/library/debian", false, nil, ""},
		{"a-shared-directory", "host", true, nil, ""}, // in which LangBot works itself
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var said bytes.Buffer
			warnOfPython(slog.New(slog.NewTextHandler(&said, nil)), tt.image, tt.shared, []string{dir(t), dir(t, tt.has...)})
			if (said.Len() > 0) != (tt.want != "") || !strings.Contains(said.String(), tt.want) {
				t.Errorf("it says %q, want %q", said.String(), tt.want)
			}
		})
	}
}
