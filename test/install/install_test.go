package install

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/cli"
)

const root = "../.."

// script runs one of scripts/ and returns what it prints.
func script(t *testing.T, name string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(root, "scripts", name), args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return string(out)
}

// files are those below a directory, sorted, with their modes.
func files(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			fi, ierr := d.Info()
			found, err = append(found, fi.Mode().String()+" "+strings.TrimPrefix(p, dir)), ierr
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return found
}

// built makes what make build share does, with another program for the binary.
func built(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
			t.Fatal(err)
		}
	}
	put("carboy", "#!/bin/sh\n", 0o755)
	put("share/THIRD-PARTY-LICENSES", "\n", 0o644)
	for _, p := range cli.Manual("v1.2.3", "2026-01-02") {
		put("share/man/"+p.Name, p.Text, 0o644)
	}
	for _, p := range cli.Completions() {
		put("share/completions/"+p.Name, p.Text, 0o644)
	}
	return dir
}

func TestInstall(t *testing.T) {
	to := t.TempDir()
	env := []string{"CARBOY_BUILT=" + built(t), "DESTDIR=" + to, "PREFIX=/opt/x"}
	other := filepath.Join(to, "opt/x/bin/other")
	if err := errors.Join(os.MkdirAll(filepath.Dir(other), 0o755), os.WriteFile(other, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // over itself, too
		script(t, "install.sh", env, "install")
	}
	got := files(t, to)
	for _, want := range []string{
		"-rwxr-xr-x /opt/x/bin/carboy", "-rw-r--r-- /opt/x/share/man/man1/carboy.1", "-rw-r--r-- /opt/x/share/man/man1/carboy-net-log.1",
		"-rw-r--r-- /opt/x/share/bash-completion/completions/carboy", "-rw-r--r-- /opt/x/share/zsh/site-functions/_carboy",
		"-rw-r--r-- /opt/x/share/fish/vendor_completions.d/carboy.fish", "-rw-r--r-- /opt/x/lib/systemd/system/carboy.service",
		"-rw-r--r-- /opt/x/lib/systemd/user/carboy.service", "-rw-r--r-- /opt/x/share/doc/carboy/THIRD-PARTY-LICENSES",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("it lacks %s", want)
		}
	}
	script(t, "install.sh", env, "uninstall")
	if left := files(t, to); !slices.Equal(left, []string{"-rw-r--r-- /opt/x/bin/other"}) {
		t.Errorf("it leaves %q", left)
	}
}

// TestUnits: systemd finds nothing wrong with them, and they keep what sandboxes need.
func TestUnits(t *testing.T) {
	to := t.TempDir()
	// A prefix that is there: systemd looks for the program.
	script(t, "install.sh", []string{"CARBOY_BUILT=" + built(t), "DESTDIR=", "PREFIX=" + to}, "install")
	for kind, wants := range map[string][]string{
		"system": {"KillMode=process", "Delegate=yes", "NoNewPrivileges=yes"},
		"user":   {"KillMode=process", "Delegate=yes"},
	} {
		unit := filepath.Join(to, "lib/systemd", kind, "carboy.service")
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		for _, want := range append(wants, "ExecStart="+to+"/bin/carboy serve") {
			if !slices.Contains(lines, want) {
				t.Errorf("the %s unit lacks %s", kind, want)
			}
		}
		if kind == "user" && slices.Contains(lines, "NoNewPrivileges=yes") {
			t.Error("the user's unit would keep newuidmap from its work")
		}
		if _, err := exec.LookPath("systemd-analyze"); err != nil {
			continue // another machine's to say
		}
		cmd := exec.Command("systemd-analyze", "verify", "--man=no", "--"+kind, unit)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("the %s unit: %v: %s", kind, err, out)
		}
	}
}

func TestPackageVersion(t *testing.T) {
	var made []string
	for _, tt := range []struct{ version, want string }{
		{"0123abc", "0~19700101000010.0123abc"},
		{"v0.9.0", "0.9.0"},
		{"v1.2.3-rc1", "1.2.3~rc1"},
		{"v1.2.3-rc1-2-gabcdef0", "1.2.3~rc1+2.gabcdef0"},
		{"v1.2.3", "1.2.3"},
		{"v1.2.3-4-gabcdef0", "1.2.3+4.gabcdef0"},
		{"v1.2.3-4-gabcdef0-dirty", "1.2.3+4.gabcdef0+dirty"},
		{"v1.10.0", "1.10.0"},
	} {
		got := strings.TrimSpace(script(t, "version.sh", []string{"CARBOY_VERSION=" + tt.version, "SOURCE_DATE_EPOCH=10"}, "--package"))
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.version, got, tt.want)
		}
		made = append(made, got)
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		return // another machine's to say
	}
	for i := range made[1:] { // each is newer than the one before
		if err := exec.Command("dpkg", "--compare-versions", made[i], "lt", made[i+1]).Run(); err != nil {
			t.Errorf("%s is not older than %s: %v", made[i], made[i+1], err)
		}
	}
}
