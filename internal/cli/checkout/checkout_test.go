package checkout

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestIdentity: the name is set first and then the e-mail, each by one call of git for the user's
// own configuration; what there is none of is not set.
func TestIdentity(t *testing.T) {
	const call = "config --global --replace-all user."
	for _, tt := range []struct {
		name, email string
		want        []string
	}{
		{"A B", "a@b", []string{call + "name A B", call + "email a@b"}},
		{"", "a@b", []string{call + "email a@b"}},
		{"A B", "", []string{call + "name A B"}},
		{`$(touch x) "`, "`id`", []string{call + `name $(touch x) "`, call + "email `id`"}},
		{"", "", nil},
	} {
		dir := t.TempDir()
		fake := "#!/bin/sh\nprintf '%s\\n' \"$*\" >>" + dir + "/did\n"
		if err := os.WriteFile(filepath.Join(dir, "git"), []byte(fake), 0o700); err != nil {
			t.Fatal(err)
		}
		set(t, tt.name, tt.email, "PATH="+dir+":"+os.Getenv("PATH"))
		text, err := os.ReadFile(filepath.Join(dir, "did"))
		if err != nil {
			t.Fatal(err)
		}
		var did []string
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, " user.") {
				did = append(did, strings.TrimSpace(line))
			}
		}
		if diff := cmp.Diff(tt.want, did); diff != "" {
			t.Errorf("%q, %q (-want +got):\n%s", tt.name, tt.email, diff)
		}
	}
}

// TestSetUp: git itself has then what was given, and where there is no git nothing fails.
func TestSetUp(t *testing.T) {
	home := t.TempDir()
	set(t, "Ann O'Hara", "ann@example.com", "PATH="+os.Getenv("PATH"), "HOME="+home)
	set(t, "Bob", "", "PATH="+os.Getenv("PATH"), "HOME="+home) // once more
	cmd := exec.Command("git", "config", "--file", filepath.Join(home, ".gitconfig"), "--list")
	got, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "safe.directory=*\ncore.checkstat=minimal\ncore.trustctime=false\nuser.name=Bob\nuser.email=ann@example.com\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	set(t, "Ann", "a@b", "PATH="+home)
}

// set runs what runs inside.
func set(t *testing.T, name, email string, env ...string) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", gitSetup, "sh", name, email)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
