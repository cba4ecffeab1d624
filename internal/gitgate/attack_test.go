package gitgate_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/carboy-sandbox/carboy/internal/gitgate"
	"github.com/carboy-sandbox/carboy/internal/gitgate/pktline"
)

// TestHostKey: an upstream is known by the keys that were told before. One that is not
// told is not reached at all, and one that has changed gets nothing.
func TestHostKey(t *testing.T) {
	s := newServer(t)
	up := bare(t)
	other := signer(t, filepath.Join(t.TempDir(), "other"))
	var dials atomic.Int32
	counted := func(c *gitgate.Config) {
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return s.dial(ctx, network, address)
		}
	}
	for _, tt := range []struct {
		name  string
		pins  []string
		says  string
		dials bool
	}{
		{"untold", nil, "is not known, and none is taken on trust", false},
		{"changed", []string{string(ssh.MarshalAuthorizedKey(other.PublicKey()))}, "not the one that it was known by", true},
		{"one-of-two", []string{string(ssh.MarshalAuthorizedKey(other.PublicKey())), s.pin()}, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dials.Store(0)
			w := &world{t: t, server: s, up: up}
			r := sshRemote(t, s, up, gitgate.Policy{})
			r.HostKeys = tt.pins
			w.serve(r, counted)
			agent := &repo{t: t, dir: t.TempDir()}
			agent.git("init", "-q")
			agent.commit("a", "a", "a")
			fetched, ferr := agent.try("fetch", w.url)
			pushed, perr := agent.try("push", w.url, "HEAD:refs/heads/"+tt.name)
			if tt.says == "" {
				if ferr != nil || perr != nil {
					t.Errorf("%v: %s; %v: %s", ferr, fetched, perr, pushed)
				}
				return
			}
			contains(t, fetched, "remote error: git gate: up: ", tt.says)
			contains(t, pushed, "remote error: git gate: up: ", tt.says)
			if ferr == nil || perr == nil || (dials.Load() > 0) != tt.dials || w.ref(tt.name) != "" {
				t.Errorf("fetched %v, pushed %v, %d connections", ferr, perr, dials.Load())
			}
		})
	}
}

// TestChangedKey: a key that changes after a clone ends fetches, and the mirror is not told
// of in upstream's place.
func TestChangedKey(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	key := filepath.Join(t.TempDir(), "other")
	signer(t, key)
	w.server.mu.Lock()
	w.server.key = key
	w.server.mu.Unlock()
	out, err := w.agent.try("fetch")
	if err == nil {
		t.Error("it fetched")
	}
	contains(t, out, "git gate: up: ")
}

// TestUnreachable: where upstream can't be reached, a fetch fails and says so, though there
// is a mirror.
func TestUnreachable(t *testing.T) {
	var down atomic.Bool
	w := newWorld(t, gitgate.Policy{}, func(c *gitgate.Config) {
		dial := c.Dial
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if down.Load() {
				return nil, fmt.Errorf("no way to %s", address)
			}
			return dial(ctx, network, address)
		}
	})
	down.Store(true)
	for _, version := range []string{"0", "2"} {
		out, err := w.agent.try("-c", "protocol.version="+version, "fetch")
		if err == nil {
			t.Error("it fetched")
		}
		contains(t, out, "remote error: git gate: up: up.example:22 can't be reached")
	}
	if e := w.events.all[len(w.events.all)-1]; e.Service != "fetch" || e.Outcome != "failed" || !strings.Contains(e.Why, "can't be reached") {
		t.Errorf("its owner is told %+v", e)
	}
	w.agent.commit("a", "a", "a")
	contains(t, w.agent.refuses(), "can't be reached")
}

// request is one as git makes it, with a body of the test's.
func request(t *testing.T, url, service string, body []byte) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/"+service, bytes.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", "application/x-"+service+"-request")
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	must(t, err)
	return res, string(text)
}

// TestOnlySmart: what is not git's smart protocol is refused, in words.
func TestOnlySmart(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	for _, path := range []string{"/HEAD", "/info/refs", "/objects/info/packs", "/objects/info/alternates", "/objects/info/http-alternates", "/objects/00/00", "/config", "/info/refs?service=git-upload-archive", "/git-upload-pack", "/../../etc/passwd"} {
		res, err := http.Get(w.url + path)
		must(t, err)
		_ = res.Body.Close()
		if res.StatusCode < 400 {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	res, err := http.Get(strings.Replace(w.url, "/up.git", "/other.git", 1) + "/info/refs?service=git-upload-pack")
	must(t, err)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("another remote: %d", res.StatusCode)
	}
	res, err = http.Post(w.url+"/git-receive-pack", "text/plain", strings.NewReader("0000"))
	must(t, err)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("another type: %d", res.StatusCode)
	}
	out, err := (&repo{t: t, dir: t.TempDir(), env: []string{"GIT_SMART_HTTP=0"}}).try("clone", w.url, "x")
	if err == nil {
		t.Errorf("a dumb clone: %s", out)
	}
}

// TestBrokenRequests: bytes that are no request of git's are refused, and none ends the gate.
func TestBrokenRequests(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	zero, main := strings.Repeat("0", 40), w.ref("main")
	caps := "\x00report-status side-band-64k"
	line := func(s string) []byte { return pktline.AppendFlush(pktline.Append(nil, s)) }
	for name, tt := range map[string]struct {
		body []byte
		says string
	}{
		"no-length":      {[]byte("zzzz"), "no length"},
		"cut":            {[]byte("00ff"), "ends within a line"},
		"nothing":        {nil, "ends before it has said"},
		"newline-in-ref": {line(zero + " " + main + " refs/heads/a\nb" + caps), "character that none may have"},
		"escape-in-ref":  {line(zero + " " + main + " refs/heads/\x1b[2J" + caps), "character that none may have"},
		"dots-in-ref":    {line(zero + " " + main + " refs/heads/../../x" + caps), "none for git"},
		"lock-in-ref":    {line(zero + " " + main + " refs/heads/a.lock" + caps), "none for git"},
		"another-ref":    {line(zero + " " + main + " refs/carboy/x" + caps), "only branches, tags and notes pass the git gate"},
		"head":           {line(zero + " " + main + " HEAD" + caps), "none that can be pushed"},
		"no-id":          {line(zero + " " + main[:39] + " refs/heads/x" + caps), "none of git's"},
		"options":        {line(zero + " " + main + " refs/heads/x" + caps + " push-options"), "push options do not pass"},
		"certificate":    {line("push-cert\x00push-cert=x"), "signed pushes do not pass"},
		"no-status":      {line(zero + " " + main + " refs/heads/x\x00"), "does not want to know"},
		"twice":          {pktline.AppendFlush(pktline.Append(pktline.Append(nil, zero+" "+main+" refs/heads/x"+caps), zero+" "+main+" refs/heads/x")), "twice in one push"},
		"no-pack":        {line(zero + " " + main + " refs/heads/x" + caps), "cut short"},
		"bad-pack":       {append(line(zero+" "+main+" refs/heads/x"+caps), "PACK\x00\x00\x00\x02\xff\xff\xff\xff"...), "where 1000000 may be"},
		"forged-old":     {line(strings.Repeat("1", 40) + " " + main + " refs/heads/main" + caps), "stale info"},
		"nothing-there":  {append(line(zero+" "+strings.Repeat("2", 40)+" refs/heads/x"+caps), emptyPack()...), "leads to no commit|would lead to no commit"},
		"a-tree":         {append(line(zero+" "+w.ref("main^{tree}")+" refs/heads/x"+caps), emptyPack()...), "would lead to no commit"},
		"only-asks":      {[]byte("0000"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			res, says := request(t, w.url, "git-receive-pack", tt.body)
			ok := false
			for s := range strings.SplitSeq(tt.says, "|") {
				ok = ok || strings.Contains(says, s)
			}
			if !ok || res.StatusCode != http.StatusOK || strings.Contains(says, "\x1b") {
				t.Errorf("%d %q, want %q", res.StatusCode, says, tt.says)
			}
		})
	}
	if got := w.up.git("for-each-ref", "--format=%(refname)"); got != "refs/heads/main" {
		t.Errorf("upstream has %s", got)
	}
	_, says := request(t, w.url, "git-upload-pack", []byte("0032want "+strings.Repeat("3", 40)+"\n00000009done\n"))
	contains(t, says, "ERR ")
}

func emptyPack() []byte { return pack() }

// pack frames entries as a pack.
func pack(entries ...[]byte) []byte {
	b := []byte("PACK\x00\x00\x00\x02")
	b = binary.BigEndian.AppendUint32(b, uint32(len(entries)))
	b = append(b, bytes.Join(entries, nil)...)
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

// TestHostileObjects: objects that git would not make are refused, and nothing of them
// stays or leaves.
func TestHostileObjects(t *testing.T) {
	w := newWorld(t, gitgate.Policy{Held: gitgate.Allow})
	object := func(r *repo, kind, text string) string {
		id, err := r.tryIn(text, "hash-object", "-w", "-t", kind, "--literally", "--stdin")
		must(t, err)
		return id
	}
	tree := func(r *repo, mode, name, id string) string {
		raw := make([]byte, 20)
		_, err := fmt.Sscanf(id, "%x", &raw)
		must(t, err)
		return object(r, "tree", mode+" "+name+"\x00"+string(raw))
	}
	commit := func(r *repo, tree string) string { return r.git("commit-tree", "-m", "x", tree) }
	for name, tt := range map[string]struct {
		says string
		make func(r *repo) string
	}{
		"dot-git":  {"git refuses the objects", func(r *repo) string { return commit(r, tree(r, "100644", ".git", object(r, "blob", "x"))) }},
		"dot-dot":  {"git refuses the objects", func(r *repo) string { return commit(r, tree(r, "100644", "..", object(r, "blob", "x"))) }},
		"bad-mode": {"git refuses the objects", func(r *repo) string { return commit(r, tree(r, "100777", "x", object(r, "blob", "x"))) }},
		"module-option": {"git refuses the objects", func(r *repo) string {
			return commit(r, tree(r, "100644", ".gitmodules", object(r, "blob", "[submodule \"a\"]\n\tpath = -u./x\n\turl = https://x.example\n")))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			agent := w.clone(name)
			id := tt.make(agent)
			contains(t, agent.refuses("origin", id+":refs/heads/"+name), tt.says)
		})
	}
	if got := w.up.git("for-each-ref", "--format=%(refname)"); got != "refs/heads/main" {
		t.Errorf("upstream has %s", got)
	}
}

// TestThinAndBombs: packs that lean on objects elsewhere, or unpack to far more than they
// are, are refused before git reads them.
func TestThinAndBombs(t *testing.T) {
	w := newWorld(t, gitgate.Policy{MaxPush: 8 << 20})
	w.agent.commit("big", strings.Repeat("some line\n", 2000), "x")
	w.agent.git("push", "-q")
	id := w.agent.commit("big", strings.Repeat("some line\n", 2000)+"more\n", "y")
	thin, err := w.agent.pack(id+"\n^"+id+"~1\n", "--revs", "--thin", "--stdout", "-q")
	must(t, err)
	head := pktline.AppendFlush(pktline.Append(nil, w.ref("main")+" "+id+" refs/heads/main\x00report-status"))
	_, says := request(t, w.url, "git-receive-pack", append(head, thin+"\x00"...)) // Output was trimmed at most of blanks
	contains(t, says, "a delta upon an object that the pack does not hold before it")

	w.agent.commit("zeros", string(make([]byte, 5<<20)), "z")
	must(t, os.WriteFile(filepath.Join(w.agent.dir, "zeros"), make([]byte, 6<<20), 0o600))
	w.agent.git("commit", "-q", "-a", "-m", "zz")
	says = w.agent.refuses()
	contains(t, says, "unpacked they have more than")
}

// TestLargeBlob: a file of 100 MiB is refused for its size, and the client hears it though
// it still sends.
func TestLargeBlob(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	noise := make([]byte, 100<<20)
	for i := range len(noise) / 8 {
		binary.LittleEndian.PutUint64(noise[i*8:], uint64(i)*0x9E3779B97F4A7C15)
	}
	must(t, os.WriteFile(filepath.Join(w.agent.dir, "big"), noise, 0o600))
	w.agent.git("-c", "core.compression=0", "add", "big")
	w.agent.git("commit", "-q", "-m", "big")
	contains(t, w.agent.refuses(), "a blob of 100", "where 50", "[remote rejected] main -> main")
}
