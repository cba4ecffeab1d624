package account_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

// guest makes a root with the given passwd and group; "" leaves one out.
func guest(t testing.TB, passwd, group string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"passwd": passwd, "group": group} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestLookup(t *testing.T) {
	user := account.Account{Name: "user", UID: 1000, GID: 1000, Home: "/home/user", Shell: "/bin/sh"}
	tests := []struct {
		name          string
		passwd, group string
		lookup        string
		want          account.Account
	}{
		{name: "no-files-user", lookup: "user", want: user},
		{name: "no-files-root", lookup: "root", want: account.Account{Name: "root", Home: "/root", Shell: "/bin/sh"}},
		{
			name: "user-home-and-shell-from-the-guest", lookup: "user",
			passwd: "user:x:1000:1000::/data:/bin/bash\n",
			want:   account.Account{Name: "user", UID: 1000, GID: 1000, Home: "/data", Shell: "/bin/bash"},
		},
		{
			name: "user-is-never-root", lookup: "user",
			passwd: "user:x:0:0::/root:/bin/bash\n", want: user,
		},
		{
			name: "user-keeps-its-group", lookup: "user",
			passwd: "user:x:1000:0::/home/user:/bin/sh\n", want: user,
		},
		{
			name: "root-is-never-another", lookup: "root",
			passwd: "root:x:1000:1000::/h:/bin/x\n",
			want:   account.Account{Name: "root", Home: "/root", Shell: "/bin/sh"},
		},
		{
			name: "other", lookup: "node",
			passwd: "# comment\nbad line\nnode:x:1234:5678:a,b:/home/node/:/bin/zsh",
			group:  "a:x:7:root,node\nb:x:5678:node\nc:x:3:node\nd:x:3:node\ne:x:9:nodes\nf:x:x:node\n",
			want: account.Account{
				Name: "node", UID: 1234, GID: 5678, Groups: []uint32{3, 7},
				Home: "/home/node", Shell: "/bin/zsh",
			},
		},
		{
			name: "first-line-wins", lookup: "a", passwd: "a:x:1:1::/1:/1\na:x:2:2::/2:/2\n",
			want: account.Account{Name: "a", UID: 1, GID: 1, Home: "/1", Shell: "/1"},
		},
		{
			name: "relative-home", lookup: "a", passwd: "a:x:1:1::home/x:sh\n",
			want: account.Account{Name: "a", UID: 1, GID: 1, Home: "/", Shell: "/bin/sh"},
		},
		{
			name: "control-in-home", lookup: "a", passwd: "a:x:1:1::/h\x1b[31m:\n",
			want: account.Account{Name: "a", UID: 1, GID: 1, Home: "/", Shell: "/bin/sh"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := account.Lookup(guest(t, tt.passwd, tt.group), tt.lookup)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Lookup(%q) mismatch (-want +got):\n%s", tt.lookup, diff)
			}
		})
	}
}

func TestLookupRefuses(t *testing.T) {
	var groups strings.Builder
	for i := range 300 {
		fmt.Fprintf(&groups, "g%d:x:%d:a\n", i, i+10)
	}
	tests := []struct {
		name          string
		passwd, group string
		lookup        string
		unknown       bool
	}{
		{name: "empty-name", lookup: ""},
		{name: "long-name", lookup: strings.Repeat("a", 300)},
		{name: "missing", lookup: "a", passwd: "b:x:1:1::/:/\n", unknown: true},
		{name: "no-passwd", lookup: "a", unknown: true},
		{name: "colon", lookup: "a:x", passwd: "a:x:1:1::/:/\n", unknown: true},
		{name: "newline", lookup: "a\nb", unknown: true},
		{name: "compat-plus", lookup: "+a", passwd: "+a:x:1:1::/:/\n", unknown: true},
		{name: "short-line", lookup: "a", passwd: "a:x:1:1\n", unknown: true},
		{name: "uid-no-change", lookup: "a", passwd: "a:x:4294967295:1::/:/\n"},
		{name: "gid-no-change", lookup: "a", passwd: "a:x:1:4294967295::/:/\n"},
		{name: "uid-wraps", lookup: "a", passwd: "a:x:4294967296:1::/:/\n"},
		{name: "uid-negative", lookup: "a", passwd: "a:x:-1:1::/:/\n"},
		{name: "uid-empty", lookup: "a", passwd: "a:x::1::/:/\n"},
		{name: "uid-hex", lookup: "a", passwd: "a:x:0x1:1::/:/\n"},
		{name: "too-many-groups", lookup: "a", passwd: "a:x:1:1::/:/\n", group: groups.String()},
		{name: "large-file", lookup: "a", passwd: strings.Repeat("#", 1<<20) + "\na:x:1:1::/:/\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := account.Lookup(guest(t, tt.passwd, tt.group), tt.lookup)
			if err == nil {
				t.Fatalf("Lookup(%q) = %+v, want an error", tt.lookup, got)
			}
			if got := errors.Is(err, account.ErrUnknown); got != tt.unknown {
				t.Errorf("errors.Is(%v, ErrUnknown) = %v, want %v", err, got, tt.unknown)
			}
		})
	}
}

func TestLookupHostileFiles(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(outside, []byte("spy:x:1:1::/:/\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		plant func(passwd string) error
	}{
		{"fifo", func(p string) error { return syscall.Mkfifo(p, 0o644) }},
		{"directory", func(p string) error { return os.Mkdir(p, 0o755) }},
		{"link-out-of-the-root", func(p string) error { return os.Symlink(outside, p) }},
		{"link-loop", func(p string) error { return os.Symlink("passwd", p) }},
		{"device", func(p string) error { return syscall.Mknod(p, syscall.S_IFCHR|0o666, 1<<8|5) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := guest(t, "", "")
			if err := tt.plant(filepath.Join(root, "etc/passwd")); err != nil {
				t.Skip(err)
			}
			// A link out of the root ends at the root, where there is nothing.
			if got, err := account.Lookup(root, "spy"); err == nil {
				t.Errorf("Lookup = %+v, want an error", got)
			}
		})
	}
}

func TestLookupThroughLinks(t *testing.T) {
	root := guest(t, "", "")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(root, "store"), 0o755))
	must(os.WriteFile(filepath.Join(root, "store/passwd"), []byte("a:x:5:6::/a:/b\n"), 0o644))
	must(os.Symlink("/store/passwd", filepath.Join(root, "etc/passwd")))
	got, err := account.Lookup(root, "a")
	must(err)
	want := account.Account{Name: "a", UID: 5, GID: 6, Home: "/a", Shell: "/b"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Lookup mismatch (-want +got):\n%s", diff)
	}
}

func TestLoadNames(t *testing.T) {
	n, err := account.LoadNames(guest(t,
		"a:x:5:1::/:/\nb:x:5:1::/:/\nbad\x1b:x:6:1::/:/\nnode:x:1000:1::/:/\n", "staff:x:50:a\n"))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{n.User(0), n.User(5), n.User(6), n.User(1000), n.Group(50), n.Group(1000), n.Group(51)}
	want := []string{"root", "a", "6", "node", "staff", "user", "51"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names mismatch (-want +got):\n%s", diff)
	}
}

func TestFromHeader(t *testing.T) {
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	tests := []struct {
		name, header string
		want         string
		ok, fail     bool
	}{
		{name: "none"},
		{name: "user", header: basic("user:"), want: "user", ok: true},
		{name: "password-ignored", header: basic("root:x:y"), want: "root", ok: true},
		{name: "lower-case-scheme", header: "basic " + base64.StdEncoding.EncodeToString([]byte("a:")), want: "a", ok: true},
		{name: "bearer", header: "Bearer x"},
		{name: "not-base64", header: "Basic ???", fail: true},
		{name: "no-colon", header: basic("user"), fail: true},
		{name: "empty-name", header: basic(":"), fail: true},
		{name: "too-long", header: basic(strings.Repeat("a", 5000) + ":"), fail: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			if tt.header != "" {
				h.Set("Authorization", tt.header)
			}
			got, ok, err := account.FromHeader(h)
			if got != tt.want || ok != tt.ok || (err != nil) != tt.fail {
				t.Errorf("FromHeader = %q, %v, %v, want %q, %v, fail %v", got, ok, err, tt.want, tt.ok, tt.fail)
			}
		})
	}
}

// Images name their user by number, with or without an entry for it.
func TestLookupNumbers(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	passwd := "root:x:0:0::/root:/bin/sh\nnode:x:1001:1002::/home/node:/bin/bash\n7:x:1500:1500::/seven:/bin/sh\n"
	if err := os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(passwd), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		want account.Account
	}{
		{"1001", account.Account{Name: "node", UID: 1001, GID: 1002, Home: "/home/node", Shell: "/bin/bash"}},
		{"65532", account.Account{Name: "65532", UID: 65532, GID: 65532, Home: "/", Shell: "/bin/sh"}},
		{"0", account.Account{Name: "root", Home: "/root", Shell: "/bin/sh"}},
		{"7", account.Account{Name: "7", UID: 1500, GID: 1500, Home: "/seven", Shell: "/bin/sh"}}, // a name comes first
	} {
		got, err := account.Lookup(root, tt.name)
		if err != nil || !cmp.Equal(got, tt.want) {
			t.Errorf("Lookup(%s) = %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
	}
	for _, name := range []string{"4294967295", "99999999999", "-1", "1 ", "0x10"} {
		if got, err := account.Lookup(root, name); err == nil {
			t.Errorf("Lookup(%q) = %+v", name, got)
		}
	}
}
