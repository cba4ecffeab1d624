package guest

import (
	"os"
	"strings"
	"testing"

	api "github.com/carboy-sandbox/carboy/api/guest"
)

func TestParseProcess(t *testing.T) {
	tail := " S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 3 0 700 1000000 10 0"
	for _, name := range []string{"sh", "a b", ") R 9 (", ""} {
		var p api.Process
		got, err := parseProcess([]byte("42 ("+name+")"+tail), 1000, &p)
		if err != nil || got != name || p.State != "S" || p.Parent != 1 || p.CPUMillis != 2000 || p.Threads != 3 || p.Started != 1007 || p.RSS != 10*int64(os.Getpagesize()) {
			t.Errorf("%q = %q, %+v, %v", name, got, p, err)
		}
	}
	for _, bad := range []string{"", "1", "1 (sh", "1 (sh) S", ")(" + tail} {
		if _, err := parseProcess([]byte(bad), 0, new(api.Process)); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
}

func TestProcesses(t *testing.T) {
	list, err := processes("/proc", &accounts{})
	if err != nil || list.Total < 1 || list.Threads < list.Total {
		t.Fatalf("processes = %d, %v", list.Total, err)
	}
	for _, p := range list.List {
		if p.PID == os.Getpid() && strings.Contains(p.Command, "guest") && p.RSS > 0 && p.Started > 0 {
			return
		}
	}
	t.Error("this process is not among them")
}

func FuzzParseProcess(f *testing.F) {
	f.Add([]byte("42 (sh) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 3 0 700 1000000 10 0"))
	f.Fuzz(func(_ *testing.T, raw []byte) { _, _ = parseProcess(raw, 1, new(api.Process)) })
}
