package doctor_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/doctor"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// secrets are what a bug report must not hold, wherever they turn up.
var secrets = []string{
	"jane-doe", "Jane-Doe", "/srv/people", "/home/someone", "moonbase", "moonbase.example.org", "s3cr3t-token", "/root/",
}

// planted is a report with a secret in every field that is found, not ours.
func planted(o doctor.Options) doctor.Report {
	all := "at /srv/people/jane-doe/x, " + o.Dirs.State + "/y and /home/someone/z on moonbase.example.org (Moonbase) for jane-doe: /root/q"
	return doctor.Report{
		Version: "v1", Kernel: "6.1-moonbase", OS: "Linux of jane-doe", Arch: "amd64", UID: 1000, Default: "strong",
		Walls: map[string]doctor.Verdict{
			"strong": {State: doctor.Missing, Error: all, Hint: all},
			"weak": {
				State: doctor.Weaker, Weaker: []doctor.Weakness{{Promise: "memory", Reason: all}},
				Keeps: []sandbox.Enforcement{{Promise: "isolation", Enforced: true, Mechanism: all}},
			},
		},
		Lines: []doctor.Line{{
			ID: "state", Area: "storage", Title: "state", State: doctor.Missing, Found: all, Why: all, Mend: all,
			Details: []string{"/usr/local/bin/s3cr3t-token"},
		}},
		Facts: []doctor.Fact{{Name: "vm.max_map_count", Value: all}},
	}
}

func TestBugReportHoldsNoSecrets(t *testing.T) {
	t.Setenv("HOME", "/srv/people/jane-doe")
	t.Setenv("CARBOY_API_KEY", "s3cr3t-token")
	t.Setenv("USER", "jane-doe")
	o := doctor.Options{Home: "/root", Dirs: home.Dirs{
		State: "/srv/people/jane-doe/state/carboy", Cache: "/srv/people/jane-doe/cache/carboy",
	}}
	control := planted(o).BugReport() // knows of nothing to hide
	for _, s := range []string{"jane-doe", "/srv/people", "moonbase.example.org", "/root/"} {
		if !strings.Contains(control, s) {
			t.Errorf("the control does not hold %q", s)
		}
	}
	r := planted(o).Named("jane-doe", "moonbase.example.org").Named("x9", "moonbase")
	private := r.Private(o)
	text := private.BugReport()
	var sent bytes.Buffer
	if err := private.Encode(&sent); err != nil {
		t.Fatal(err)
	}
	if got, err := doctor.Decode(&sent); err != nil || got.BugReport() != text {
		t.Errorf("on its way to another program it becomes, with %v:\n%s", err, got.BugReport())
	}
	for _, s := range secrets {
		if strings.Contains(text, s) {
			t.Errorf("%q is in the report", s)
		}
	}
	for _, want := range []string{"~", "STATE/y", "USER", "HOST", "vm.max_map_count", "the default", "storage"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the report", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestRealReportHoldsNoSecrets runs it all, over directories whose names are
// private, with an environment that is.
func TestRealReportHoldsNoSecrets(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "jane-doe")
	for _, d := range []string{"home/.cargo/bin/s3cr3t-token", "state", "cache"} {
		if err := os.MkdirAll(filepath.Join(own, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", filepath.Join(own, "home"))
	t.Setenv("USER", "jane-doe")
	t.Setenv("SECRET", "s3cr3t-token")
	t.Setenv("PATH", os.Getenv("PATH")+":/srv/people/bin")
	f := fakeWall{name: "strong", startErr: sandbox.Errorf(sandbox.Internal, "open %s: no", filepath.Join(own, "state", "x"))}
	r, err := doctor.Run(t.Context(), doctor.Options{
		Version: "v1", Home: filepath.Join(own, "home"), Default: "strong", Walls: []doctor.Wall{f.wall()},
		Dirs: home.Dirs{State: filepath.Join(own, "state"), Cache: filepath.Join(own, "cache")},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := r.BugReport()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(secrets, own, dir, "@"+host, "(none) "+host) {
		if strings.Contains(text, s) {
			t.Errorf("%q is in the report", s)
		}
	}
	for _, want := range []string{"user.max_user_namespaces", "file system of state", "mount /proc: proc", "cargo", "kernel ", "CapEff"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the report:\n%s", want, text)
		}
	}
}
