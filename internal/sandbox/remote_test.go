package sandbox_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIVeJ0ysoBGqXOmJ+zJgGhYhbXJiYdMPTZmQeVMQZJQM"

var aRemote = sandbox.Remote{
	Name: "app", URL: "ssh://git@git.example:2222/app.git", KnownHostKey: hostKey,
	Key: sandbox.RemoteKey{Provider: sandbox.KeyStatic, Path: "/home/ann/.ssh/id"},
}

// TestOwnRemotes: a sandbox with remotes has a way to its gate and to nothing else, whatever it had before, and
// what it had of rules stays.
func TestOwnRemotes(t *testing.T) {
	for _, tt := range []struct {
		name, network string
		p             *policy.Policy
		want          string
	}{
		{"nothing", "", nil, sandbox.NetworkPolicy},
		{"off", sandbox.NetworkOff, nil, sandbox.NetworkPolicy},
		{"policy", "", allow("a.example"), sandbox.NetworkPolicy},
		{"on", sandbox.NetworkOn, nil, sandbox.NetworkOn},
	} {
		t.Run(tt.name, func(t *testing.T) {
			network, p, err := sandbox.Own{Remotes: []sandbox.Remote{aRemote}}.Network(tt.network, tt.p)
			if err != nil || network != tt.want || !cmp.Equal(p.Services, []string{sandbox.ServiceGit}) {
				t.Fatalf("Network = %q, %+v, %v", network, p, err)
			}
			again, same, err := sandbox.Own{Remotes: []sandbox.Remote{aRemote}}.Network(network, p)
			if err != nil || again != network || !cmp.Equal(same, p) {
				t.Errorf("once more it is %q, %s, %v", again, cmp.Diff(p, same), err)
			}
			set, err := policy.Compile(*p, nil)
			if err != nil {
				t.Fatal(err)
			}
			if v := set.Name("a.example"); v.Allowed() != (tt.name == "policy" || tt.name == "on") {
				t.Errorf("a.example: %+v", v)
			}
		})
	}
	if network, p, err := (sandbox.Own{}).Network(sandbox.NetworkOff, nil); network != sandbox.NetworkOff || p != nil || err != nil {
		t.Errorf("without remotes: %q, %+v, %v", network, p, err)
	}
}

// TestRemoteHostsClosed: where all of the internet is open, the host of a remote takes no SSH and no push from the sandbox
// itself. Another host does.
func TestRemoteHostsClosed(t *testing.T) {
	github := sandbox.Remote{Name: "gh", URL: "git@github.com:me/app.git", Key: aRemote.Key}
	_, p, err := sandbox.Own{Remotes: []sandbox.Remote{aRemote, github}}.Network(sandbox.NetworkOn, nil)
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Compile(*p, nil)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr("203.0.114.7")
	for _, tt := range []struct {
		host string
		port uint16
		want bool
	}{
		{"git.example", 22, false}, {"git.example", 2222, false}, {"github.com", 22, false}, {"ssh.github.com", 443, false}, {"gist.github.com", 22, true}, {"other.example", 22, true},
	} {
		v := set.Connect(policy.Conn{Addr: netip.AddrPortFrom(addr, tt.port), Names: []string{tt.host}})
		if v.Allowed() != tt.want {
			t.Errorf("%s:%d: %+v, want allowed: %t", tt.host, tt.port, v, tt.want)
		}
	}
	for _, tt := range []struct {
		host, method, url string
		want              bool
	}{
		{"git.example", "POST", "/app.git/git-receive-pack", false},
		{"git.example", "POST", "/app.git/GIT-receive-pack", false},
		{"git.example", "GET", "/app.git/info/refs?service=git-receive-pack", false},
		{"git.example", "POST", "/app.git/info/lfs/objects/batch", false},
		{"git.example", "GET", "/app.git/info/refs?service=git-upload-pack", true},
		{"git.example", "POST", "/app.git/git-upload-pack", true},
		{"other.example", "POST", "/app.git/git-receive-pack", true},
	} {
		u, err := url.Parse("https://" + tt.host + tt.url)
		if err != nil {
			t.Fatal(err)
		}
		v := set.Request(policy.Request{Addr: netip.AddrPortFrom(addr, 443), Name: tt.host, TLS: true, Method: tt.method, URL: u})
		if v.Allowed() != tt.want {
			t.Errorf("%s %s: %+v, want allowed: %t", tt.method, u, v, tt.want)
		}
	}
}

func TestCheckRemotes(t *testing.T) {
	offer := sandbox.Offer{Walls: []string{sandbox.WallGVisor}, Gate: true}
	change := func(f func(r *sandbox.Remote)) []sandbox.Remote {
		r := aRemote
		f(&r)
		return []sandbox.Remote{r}
	}
	for name, remotes := range map[string][]sandbox.Remote{
		"no name":        change(func(r *sandbox.Remote) { r.Name = "" }),
		"a path":         change(func(r *sandbox.Remote) { r.Name = "../app" }),
		"twice":          {aRemote, aRemote},
		"one repository": {aRemote, change(func(r *sandbox.Remote) { r.Name, r.URL = "too", "ssh://me@GIT.example:2222/app" })[0]},
		"too many":       make([]sandbox.Remote, 17),
		"git's protocol": change(func(r *sandbox.Remote) { r.URL = "git://git.example/app.git" }),
		"a password":     change(func(r *sandbox.Remote) { r.URL = "https://me:secret@git.example/app.git" }),
		"no key of SSH":  change(func(r *sandbox.Remote) { r.Key = sandbox.RemoteKey{} }),
		"no such key":    change(func(r *sandbox.Remote) { r.Key.Provider = "vault" }),
		"relative":       change(func(r *sandbox.Remote) { r.Key.Path = ".ssh/id" }),
		"secret and path": change(func(r *sandbox.Remote) {
			r.Key = sandbox.RemoteKey{Provider: sandbox.KeySecret, Name: "KEY", Path: "/x"}
		}),
		"a host's key": change(func(r *sandbox.Remote) { r.KnownHostKey = "ssh-ed25519 AAAA" }),
		"pinned HTTPS": change(func(r *sandbox.Remote) { r.URL = "https://git.example/app.git" }),
		"agent for HTTPS": change(func(r *sandbox.Remote) {
			r.URL, r.KnownHostKey, r.Key.Provider = "https://git.example/app.git", "", sandbox.KeyAgent
		}),
	} {
		spec := sandbox.Spec{Name: "web", Remotes: remotes}.Normalize(offer)
		err := spec.Validate(offer)
		if sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: a password is repeated: %v", name, err)
		}
	}
	spec := sandbox.Spec{Name: "web", Remotes: []sandbox.Remote{aRemote}}.Normalize(offer)
	if err := spec.Validate(offer); err != nil {
		t.Errorf("what can be: %v", err)
	}
}
