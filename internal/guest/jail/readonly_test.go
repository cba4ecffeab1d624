package jail_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// lines makes a mountinfo of places and their options.
func lines(mounts ...string) []byte {
	var b strings.Builder
	for _, m := range mounts {
		at, opts, _ := strings.Cut(m, " ")
		b.WriteString("31 30 0:11 / " + at + " " + opts + " master:1 - ext4 /dev/vda rw\n")
	}
	return []byte(b.String())
}

func TestReadOnlySteps(t *testing.T) {
	cfg := jail.Config{Writable: []string{"/workspace", "/tmp", "/home/user"}, Hide: []string{"/run/carboy"}}
	tests := []struct {
		name            string
		mounts          []byte
		binds, remounts []string
	}{
		{"root-alone", lines("/ rw"), []string{"/workspace", "/tmp", "/home/user"}, []string{"/"}},
		{"mounts-already", lines("/ rw", "/workspace rw", "/tmp rw,nosuid"), []string{"/home/user"}, []string{"/"}},
		{"below-writable", lines("/ rw", "/workspace/.skills rw", "/workspacer rw"), []string{"/workspace", "/tmp", "/home/user"}, []string{"/", "/workspacer"}},
		{"no-files", lines("/ rw", "/proc rw", "/proc/sys rw", "/dev rw", "/dev/pts rw", "/dev/shm rw", "/run/carboy/cgroup rw", "/sys rw"), []string{"/workspace", "/tmp", "/home/user"}, []string{"/", "/dev", "/sys"}},
		{"read-only-already", lines("/ ro,nosuid", "/usr rw", "/etc/ssh ro"), []string{"/workspace", "/tmp", "/home/user"}, []string{"/usr"}},
		{"the-topmost-counts", lines("/ rw", "/usr rw", "/usr ro"), []string{"/workspace", "/tmp", "/home/user"}, []string{"/"}},
		{"escaped", lines(`/ rw`, `/mnt/a\040b\134 rw`), []string{"/workspace", "/tmp", "/home/user"}, []string{"/", `/mnt/a b\`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			binds, remounts, err := jail.RemountsForTest(tt.mounts, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.binds, binds); d != "" {
				t.Errorf("binds (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.remounts, remounts); d != "" {
				t.Errorf("remounts (-want +got):\n%s", d)
			}
		})
	}
}

// A jail that could not make a mount read-only is none.
func TestReadOnlyIsChecked(t *testing.T) {
	cfg := jail.Config{Writable: []string{"/tmp"}}
	if err := jail.AllReadOnlyForTest(lines("/ ro", "/tmp rw", "/tmp/x rw", "/dev/pts rw"), cfg); err != nil {
		t.Error(err)
	}
	for _, left := range []string{"/ rw", "/usr rw", "/tmpx rw", "/dev rw"} {
		if err := jail.AllReadOnlyForTest(lines("/ ro", left), cfg); err == nil {
			t.Errorf("%s: no error", left)
		}
	}
}

func TestReadOnlyRoot(t *testing.T) {
	kept := playground(t)
	lost := playground(t)
	try := func(dir string) string { return "echo x 2>/dev/null >" + dir + "/f && echo wrote || echo refused; " }
	script := try(kept) + try(lost) + "echo x >/dev/null && echo device"
	j := start(t, jail.Config{ReadOnlyRoot: true, Writable: []string{kept}})
	if got := sh(t, j, nobody, script).out; got != "wrote\nrefused\ndevice\n" {
		t.Errorf("with a read-only root: %q", got)
	}
	if got := sh(t, start(t, jail.Config{}), nobody, script).out; got != "wrote\nwrote\ndevice\n" {
		t.Errorf("without: %q", got)
	}
	if err := j.KillInitForTest(); err != nil {
		t.Fatal(err)
	}
	for range 100 { // the next one's is no other
		if r, err := run(t, j, jail.Command{Argv: []string{"sh", "-c", script}, User: nobody}); err == nil && r.out != "" {
			if r.out != "wrote\nrefused\ndevice\n" {
				t.Errorf("after init's death: %q", r.out)
			}
			break
		}
	}
	for _, bad := range []string{"/", "tmp", "/tmp/../etc"} {
		if j, err := jail.Start(jail.Config{PIDNamespace: true, ReadOnlyRoot: true, Writable: []string{bad}}); err == nil {
			j.Close()
			t.Errorf("%q stays writable", bad)
		}
	}
}

// FuzzMounts: whatever is mounted, all of it is bound, made read-only, left
// for what it is, or an error.
func FuzzMounts(f *testing.F) {
	f.Add([]byte("31 30 0:11 / / rw - 9p none rw\n"))
	f.Add(lines("/ rw,nosuid,relatime", `/a\040b ro`, "/proc rw"))
	f.Add([]byte("36 33 0:18 / /run/carboy rw,nosuid - 9p none rw,trans=fd\nx"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg := jail.Config{Writable: []string{"/tmp"}}
		_, remounts, err := jail.RemountsForTest(text, cfg)
		if err != nil {
			return
		}
		if slices.ContainsFunc(remounts, func(s string) bool { return s == "/tmp" || strings.HasPrefix(s, "/tmp/") || !strings.HasPrefix(s, "/") }) {
			t.Errorf("made read-only: %q", remounts)
		}
		if err := jail.AllReadOnlyForTest(text, cfg); (err == nil) != (len(remounts) == 0) {
			t.Errorf("%d to be made read-only, and the check says %v", len(remounts), err)
		}
	})
}
