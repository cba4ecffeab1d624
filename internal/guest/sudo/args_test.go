package sudo

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

func TestParse(t *testing.T) {
	tests := []struct {
		args string
		want call
	}{
		{"id", call{argv: []string{"id"}}},
		{"-n -E -- -x", call{keep: true, argv: []string{"-x"}}},
		{"-nEH id -u", call{keep: true, home: true, argv: []string{"id", "-u"}}},
		{"-unobody id", call{user: "nobody", argv: []string{"id"}}},
		{"-Eu nobody id", call{user: "nobody", keep: true, argv: []string{"id"}}},
		{"-u #1000 id", call{user: "1000", argv: []string{"id"}}},
		{"--user=nobody --preserve-env id", call{user: "nobody", keep: true, argv: []string{"id"}}},
		{"--user nobody -D /etc id", call{user: "nobody", dir: "/etc", argv: []string{"id"}}},
		{"A=1 B=x=y make C=2", call{env: []string{"A=1", "B=x=y"}, argv: []string{"make", "C=2"}}},
		{"./a=b", call{argv: []string{"./a=b"}}},
		{"-i", call{login: true}},
		{"-s echo x", call{shell: true, argv: []string{"echo", "x"}}},
		{"-k", call{info: validate}},
		{"-k id", call{argv: []string{"id"}}},
		{"-l", call{info: list}},
		{"-V", call{info: version}},
	}
	for _, tt := range tests {
		got, err := parse(strings.Fields(tt.args))
		if tt.want.user == "" {
			tt.want.user = account.Root
		}
		if len(got.argv) == 0 {
			got.argv = nil
		}
		if err != nil || !cmp.Equal(got, tt.want, cmp.AllowUnexported(call{})) {
			t.Errorf("%s: %v\n%s", tt.args, err, cmp.Diff(tt.want, got, cmp.AllowUnexported(call{})))
		}
	}
	for _, args := range []string{"", "-n", "-u", "-u root", "--user", "-x id", "-T 5 id", "-e /etc/passwd", "--chroot=/ id", "--preserve-env=A id", "-i -s", "A=1"} {
		if got, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%q is %+v", args, got)
		}
	}
}

// What a shell is handed is read by it as it stood, but for variables.
func TestQuote(t *testing.T) {
	for _, arg := range []string{"", "plain", "two words", "it's", `a"b`, `\`, "a\nb", "*", "~", "#", "é", "-n", "a;b|c&d", "(x)", "\t", "!", "`x`"} {
		out, err := exec.Command("/bin/sh", "-c", "printf %s. "+quote(arg)).Output()
		if err != nil || string(out) != arg+"." {
			t.Errorf("%q: a shell reads %q, %v", arg, out, err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	callers := map[string]string{"TERM": "xterm", "LC_ALL": "C", "MINE": "1", "PATH": "/mine", "LD_PRELOAD": "/x", "HOME": "/home/user", "SUDO_USER": "me", "BASH_FUNC_id%%": "() { x; }"}
	who := account.Account{Name: "user", UID: 1000, GID: 1000}
	own := map[string]string{"SUDO_USER": "user", "SUDO_UID": "1000", "SUDO_GID": "1000", "SUDO_COMMAND": "id -u", "TERM": "xterm", "LC_ALL": "C"}
	for _, tt := range []struct {
		name string
		c    call
		more map[string]string
	}{
		{"plain", call{}, nil},
		{"given", call{env: []string{"PATH=/given", "TERM=vt100"}}, map[string]string{"PATH": "/given", "TERM": "vt100"}},
		{"kept", call{keep: true}, map[string]string{"MINE": "1", "HOME": "/home/user"}},
		{"kept-but-home", call{keep: true, home: true}, map[string]string{"MINE": "1"}},
	} {
		want := map[string]string{}
		for _, m := range []map[string]string{own, tt.more} {
			for k, v := range m {
				want[k] = v
			}
		}
		if diff := cmp.Diff(want, tt.c.environment(callers, who, []string{"id", "-u"})); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}
