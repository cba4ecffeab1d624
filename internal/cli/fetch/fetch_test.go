package fetch_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli/fetch"
)

// FuzzFrame holds that no news leaves its line of the terminal.
func FuzzFrame(f *testing.F) {
	f.Add("aaaaaaaaaaaa", "download", int64(1), int64(2), uint32(80))
	f.Add("\x1b[2J", "\n", int64(-5), int64(1)<<62, uint32(0))
	f.Add("", "unpack", int64(1)<<60, int64(1)<<60, uint32(80))
	f.Fuzz(func(t *testing.T, layer, phase string, done, total int64, cols uint32) {
		cols %= 1000
		for _, l := range fetch.Frame(cols, 24, api.ImageProgress{Layer: layer, Phase: phase, Done: done, Total: total}) {
			if utf8.RuneCountInString(l) > max(0, int(cols)-1) || strings.ContainsFunc(l, unicode.IsControl) {
				t.Errorf("%q on a terminal of %d columns", l, cols)
			}
		}
	})
}

func TestFrame(t *testing.T) {
	news := []api.ImageProgress{
		{Phase: "resolve"},
		{Phase: "done"},
		{Layer: "aaaaaaaaaaaa", Phase: "download", Done: 1 << 20, Total: 2 << 20},
		{Layer: "bbbbbbbbbbbb", Phase: "done"},
		{Layer: "cccccccccccc", Phase: "unpack", Done: 3 << 20},
		{Layer: "dddddddddddd", Phase: "evil\x1b[2J"},
		{Layer: "aaaaaaaaaaaa", Phase: "download", Done: 5 << 20, Total: 2 << 20}, // more than there is
	}
	want := []string{
		"aaaaaaaaaaaa  download    [========================]  5 MiB of 2 MiB",
		"cccccccccccc  unpack      3 MiB",
		`dddddddddddd  evil\x1b[2J`,
		"1 layer done",
	}
	if diff := cmp.Diff(want, fetch.Frame(100, 30, news...)); diff != "" {
		t.Errorf("frame (-want +got):\n%s", diff)
	}
	var many []api.ImageProgress
	for i := range 100 {
		many = append(many, api.ImageProgress{Layer: fmt.Sprint(i), Phase: "download", Done: 1, Total: 2})
	}
	for _, s := range [][2]uint32{{80, 24}, {20, 5}, {1, 1}, {0, 0}} {
		lines := fetch.Frame(s[0], s[1], many...)
		if len(lines) > max(2, int(s[1])-1) {
			t.Errorf("%d lines on a terminal of %d", len(lines), s[1])
		}
		for _, l := range lines {
			if len(l) > max(0, int(s[0])-1) {
				t.Errorf("%q on a terminal of %d columns", l, s[0])
			}
		}
	}
}
