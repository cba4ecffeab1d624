package gitgate_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/gitgate"
	"github.com/carboy-sandbox/carboy/internal/gitgate/pktline"
)

// hook has upstream run a script.
func (w *world) hook(name, script string) {
	w.t.Helper()
	must(w.t, os.WriteFile(filepath.Join(w.up.dir, "hooks", name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
}

// TestUpstreamRefuses: what upstream says of why it does not take a push reaches who
// pushed, in its words, and of several refs none is changed.
func TestUpstreamRefuses(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	w.hook("update", `case $1 in *bad*) echo "ask Ada first" >&2; exit 1;; esac`)
	w.agent.commit("a", "a", "a")
	says := w.agent.refuses("origin", "HEAD:good", "HEAD:bad")
	contains(t, says, "remote: upstream: ask Ada first", "bad (hook declined)")
	if w.ref("good") != "" || w.ref("bad") != "" {
		t.Error("a part of it is upstream")
	}
	w.agent.git("push", "-q", "origin", "HEAD:good")
}

// TestAtomic: of several refs none is changed where one is not what the agent saw.
func TestAtomic(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	w.hook("pre-receive", "")
	direct := &repo{t: t, dir: t.TempDir()}
	direct.git("clone", "-q", w.up.dir, ".")
	main := w.ref("main")
	a := w.agent.commit("a", "a", "a")
	caps := "\x00report-status side-band-64k"
	packed, err := w.agent.pack(a+"\n^"+main+"\n", "--revs", "--stdout", "-q")
	must(t, err)
	moved := direct.commit("b", "b", "b")
	direct.git("push", "-q")
	body := pktline.Append(nil, strings.Repeat("0", 40)+" "+a+" refs/heads/x"+caps)
	body = pktline.AppendFlush(pktline.Append(body, main+" "+a+" refs/heads/main"))
	_, says := request(t, w.url, "git-receive-pack", append(body, packed...))
	contains(t, says, "stale info", "another ref was refused")
	if w.ref("x") != "" || w.ref("main") != moved {
		t.Errorf("x is %s, main %s", w.ref("x"), w.ref("main"))
	}
}

// TestAtOnce: of two pushes of one ref at once one wins, and the other is told; of pushes
// of several refs all are there.
func TestAtOnce(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	const agents = 4
	var won atomic.Int32
	var all sync.WaitGroup
	var clones []*repo
	for i := range agents {
		clones = append(clones, w.clone(string(rune('a'+i))))
		clones[i].commit("f", string(rune('a'+i)), "x")
	}
	for i, agent := range clones {
		all.Go(func() {
			if _, err := agent.try("push", "-q", "origin", "main"); err == nil {
				won.Add(1)
			}
			if out, err := agent.try("push", "-q", "origin", "HEAD:refs/heads/own-"+string(rune('a'+i))); err != nil {
				t.Errorf("its own ref: %v: %s", err, out)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d pushes of main won", won.Load())
	}
	if got := strings.Count(w.up.git("for-each-ref", "refs/heads/own-*"), "\n") + 1; got != agents {
		t.Errorf("%d refs", got)
	}
}

// lossy is a connection that is cut when something was written or read.
type lossy struct {
	net.Conn
	cut func(p []byte, write bool) bool
}

func (l *lossy) Write(p []byte) (int, error) {
	if l.cut(p, true) {
		_ = l.Close()
		return 0, errors.New("cut")
	}
	return l.Conn.Write(p)
}

func (l *lossy) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if err == nil && l.cut(p[:n], false) {
		_ = l.Close()
		return 0, errors.New("cut")
	}
	return n, err
}

// TestLost: where the connection is lost in the middle of a push, upstream is asked what
// became of it, and the client is told.
func TestLost(t *testing.T) {
	for _, tt := range []struct {
		name string
		cut  func(count *atomic.Int64, done func() bool) func(p []byte, write bool) bool
		done bool
		says string
	}{
		{"while-sending", func(sent *atomic.Int64, _ func() bool) func([]byte, bool) bool {
			return func(p []byte, write bool) bool { return write && sent.Add(int64(len(p))) > 100_000 }
		}, false, "upstream's refs are as before"},
		{"before-the-report", func(_ *atomic.Int64, done func() bool) func([]byte, bool) bool {
			return func(_ []byte, write bool) bool { return !write && done() }
		}, true, "it was pushed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, gitgate.Policy{Unscannable: gitgate.Allow})
			noise := make([]byte, 400_000)
			_, err := rand.NewChaCha8([32]byte{}).Read(noise)
			must(t, err)
			w.agent.write("noise", string(noise))
			id := w.agent.commit("a", "a", "a")
			var conns, sent atomic.Int64
			once := sync.Once{}
			w.server.mu.Lock()
			w.server.wrap = func(c net.Conn) net.Conn {
				if conns.Add(1) != 2 { // the first tells the refs, the third what became of it
					return c
				}
				cut := tt.cut(&sent, func() bool { return w.ref("main") == id })
				return &lossy{c, func(p []byte, write bool) (is bool) {
					if cut(p, write) {
						once.Do(func() { is = true })
					}
					return is
				}}
			}
			w.server.mu.Unlock()
			says, err := w.agent.try("push", "origin", "main")
			contains(t, says, tt.says)
			if (err == nil) != tt.done || (w.ref("main") == id) != tt.done {
				t.Errorf("%v; upstream has %s, the agent %s", err, w.ref("main"), id)
			}
		})
	}
}

// TestClientDies: of a client that dies as it sends nothing is left, here or upstream, and
// the next push is taken.
func TestClientDies(t *testing.T) {
	dir := ""
	w := newWorld(t, gitgate.Policy{}, func(c *gitgate.Config) { dir = c.Dir })
	id := w.agent.commit("a", strings.Repeat("some text\n", 1000), "a")
	packed, err := w.agent.pack(id+"\n^"+w.ref("main")+"\n", "--revs", "--stdout", "-q")
	must(t, err)
	head := pktline.AppendFlush(pktline.Append(nil, w.ref("main")+" "+id+" refs/heads/main\x00report-status side-band-64k"))
	pr, pw := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/git-receive-pack", pr)
	must(t, err)
	req.Header.Set("Content-Type", "application/x-git-receive-pack-request")
	ended := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		ended <- err
	}()
	_, err = pw.Write(append(head, packed[:len(packed)/2]...))
	must(t, err)
	cancel()
	_ = pw.CloseWithError(context.Canceled) // the client reads its body to the end else
	if err := <-ended; err == nil {
		t.Error("it was answered")
	}
	w.agent.git("push", "-q", "origin", "HEAD:refs/heads/next")
	if w.ref("main") == id || w.ref("next") != id {
		t.Errorf("main %s, next %s", w.ref("main"), w.ref("next"))
	}
	left, err := os.ReadDir(filepath.Join(dir, "up", "push"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestClientLeavesWhileAsked: a client that leaves takes its question along, and nothing of
// its push goes upstream.
func TestClientLeavesWhileAsked(t *testing.T) {
	a := &asker{answer: gitgate.Answer{Allow: true}, wait: make(chan struct{})}
	asked := make(chan struct{})
	w := newWorld(t, gitgate.Policy{}, func(c *gitgate.Config) {
		c.Asker = askFunc(func(ctx context.Context, q gitgate.Question) (gitgate.Answer, error) {
			close(asked)
			return a.Ask(ctx, q)
		})
	})
	id := w.agent.commit(".envrc", "x", "x")
	packed, err := w.agent.pack(id+"\n^"+w.ref("main")+"\n", "--revs", "--stdout", "-q")
	must(t, err)
	head := pktline.AppendFlush(pktline.Append(nil, w.ref("main")+" "+id+" refs/heads/main\x00report-status side-band-64k"))
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/git-receive-pack", bytes.NewReader(append(head, packed...)))
	must(t, err)
	req.Header.Set("Content-Type", "application/x-git-receive-pack-request")
	go func() {
		<-asked
		cancel()
	}()
	res, err := http.DefaultClient.Do(req)
	if err == nil {
		_, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
	}
	if err == nil {
		t.Error("it was answered")
	}
	w.agent.git("push", "-q", "origin", "HEAD~1:refs/heads/next") // waits for the other's end
	if w.ref("main") == id {
		t.Error("it is upstream")
	}
}

type askFunc func(ctx context.Context, q gitgate.Question) (gitgate.Answer, error)

func (f askFunc) Ask(ctx context.Context, q gitgate.Question) (gitgate.Answer, error) {
	return f(ctx, q)
}

// TestShallowAndPartial: clones that lack history or files fetch what they lack, and push.
func TestShallowAndPartial(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	for _, name := range []string{"b", "c", "d"} {
		w.agent.commit(name, strings.Repeat(name+"\n", 100), name)
	}
	w.agent.git("push", "-q")
	for name, args := range map[string][]string{
		"shallow": {"--depth", "1"}, "since": {"--shallow-exclude", "old"}, "blobless": {"--filter", "blob:none"}, "treeless": {"--filter", "tree:0"}, "v0": {"--filter", "blob:none", "-c", "protocol.version=0"},
	} {
		t.Run(name, func(t *testing.T) {
			w.up.git("tag", "-f", "old", "main~1")
			c := w.clone(name, args...)
			id := c.commit("of-"+name, name, name)
			c.git("push", "-q", "origin", "HEAD:refs/heads/"+name)
			if w.ref(name) != id {
				t.Errorf("upstream has %s", w.ref(name))
			}
			if c.git("show", "HEAD~1:d") == "" {
				t.Error("a file is empty")
			}
		})
	}
	w.up.git("fsck", "--strict")
	lacking := w.clone("lacking", "--depth", "1")
	tree := lacking.git("rev-parse", "HEAD^{tree}")
	missing, err := lacking.tryIn("tree "+tree+"\nparent "+strings.Repeat("4", 40)+"\nauthor A <a@b.example> 1 +0000\ncommitter A <a@b.example> 1 +0000\n\nx\n", "hash-object", "-t", "commit", "-w", "--stdin")
	must(t, err)
	packed, err := lacking.pack(missing, "--stdout", "-q")
	must(t, err)
	head := pktline.AppendFlush(pktline.Append(nil, strings.Repeat("0", 40)+" "+missing+" refs/heads/lacking\x00report-status"))
	_, says := request(t, w.url, "git-receive-pack", append(head, packed...))
	contains(t, says, "ng refs/heads/lacking")
}

// TestPushOptions: they are refused before anything is sent.
func TestPushOptions(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	w.agent.commit("a", "a", "a")
	contains(t, w.agent.refuses("-o", "ci.skip"), "does not support push options")
}

// TestLies: an upstream that does not send what its refs lead to, has names of refs that
// none may have, or speaks no protocol of git's, is refused.
func TestLies(t *testing.T) {
	for name, tt := range map[string]struct{ advert, answer, says string }{
		"missing":     {adverts(strings.Repeat("a", 40) + " refs/heads/main\x00side-band-64k ofs-delta"), "0008NAK\n" + band(string(pack())) + "0000", "did not send what its refs lead to"},
		"newline":     {adverts(strings.Repeat("a", 40) + " refs/heads/a\nb\x00side-band-64k"), "", "character that none may have"},
		"twice":       {adverts(strings.Repeat("a", 40)+" refs/heads/a\x00side-band-64k", strings.Repeat("b", 40)+" refs/heads/a"), "", "twice"},
		"no-id":       {adverts("../../x refs/heads/a\x00side-band-64k"), "", "a line that is none"},
		"no-protocol": {"SSH-2.0-hello", "", "not git's protocol"},
		"cut":         {adverts(strings.Repeat("a", 40) + " refs/heads/main\x00side-band-64k ofs-delta"), "0008NAK\n", "connection to upstream was lost"},
		"no-pack":     {adverts(strings.Repeat("a", 40) + " refs/heads/main\x00side-band-64k ofs-delta"), "0008NAK\n" + band("hello hello hello") + "0000", "what upstream sent is refused"},
		"error":       {adverts(strings.Repeat("a", 40) + " refs/heads/main\x00side-band-64k ofs-delta"), "0008NAK\n000a\x03gone\n", "upstream says: gone"},
		"escape":      {"000eERR \x1b[2Jx\n", "", `\x1b[2Jx`},
	} {
		t.Run(name, func(t *testing.T) {
			w, b, _ := httpsWorld(t, gitgate.Policy{})
			b.answer(func(rw http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost {
					rw.Header().Set("Content-Type", "application/x-git-upload-pack-result")
					_, _ = io.WriteString(rw, tt.answer)
					return true
				}
				rw.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
				_, _ = io.WriteString(rw, "001e# service=git-upload-pack\n0000"+tt.advert)
				return true
			})
			out, err := w.agent.try("fetch")
			if err == nil {
				t.Error("it fetched")
			}
			contains(t, out, tt.says)
			b.answer(nil)
			w.agent.git("fetch", "-q") // the mirror is as it was
		})
	}
}

func adverts(lines ...string) string {
	var b []byte
	for _, l := range lines {
		b = pktline.Append(b, l)
	}
	return string(pktline.AppendFlush(b))
}

func band(text string) string {
	var b bytes.Buffer
	_, _ = io.WriteString(pktline.Band{W: &b, Band: pktline.BandData}, text)
	return b.String()
}

// TestHangs: an upstream that says nothing keeps no client that has left, and no other remote.
func TestHangs(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	dialled := make(chan struct{})
	w.server.mu.Lock()
	w.server.wrap = func(c net.Conn) net.Conn {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _, _ = c.Close(), theirs.Close() })
		close(dialled)
		return ours
	}
	w.server.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/info/refs?service=git-upload-pack", nil)
	must(t, err)
	go func() {
		<-dialled
		cancel()
	}()
	if res, err := http.DefaultClient.Do(req); err == nil {
		_ = res.Body.Close()
		t.Error("it was answered")
	}
	w.server.mu.Lock()
	w.server.wrap = nil
	w.server.mu.Unlock()
	w.agent.git("fetch", "-q")
}

// TestRestart: a gate that was killed is begun anew over what it left; two at once have not
// one directory.
func TestRestart(t *testing.T) {
	var config gitgate.Config
	w := newWorld(t, gitgate.Policy{}, func(c *gitgate.Config) { config = *c })
	if _, err := gitgate.New(config); err == nil || !strings.Contains(err.Error(), "another git gate") {
		t.Errorf("a second one: %v", err)
	}
	must(t, w.gate.Close())
	must(t, os.MkdirAll(filepath.Join(config.Dir, "up", "push", "in"), 0o700))
	must(t, os.WriteFile(filepath.Join(config.Dir, "up", "in", "p.pack"), []byte("half"), 0o400))
	again := &world{t: t, server: w.server, up: w.up}
	again.serve(config.Remotes[0], func(c *gitgate.Config) { c.Dir = config.Dir })
	w.agent.commit("a", "a", "a")
	w.agent.git("push", "-q", again.url, "HEAD:again")
	again.clone("c")
	w.gate = again.gate
}

// TestAfterReport: what upstream does after it has told how a push ended, it does to its
// end, and what it says meanwhile reaches who pushed.
func TestAfterReport(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	done := filepath.Join(t.TempDir(), "done")
	w.hook("post-receive", `echo deployed to the stage >&2
i=0; while [ $i -lt 3000 ]; do echo "0123456789012345678901234567890123456789" >&2 || exit 1; i=$((i+1)); done
touch `+done)
	w.agent.commit("a", "a", "a")
	contains(t, w.agent.git("push"), "upstream: deployed to the stage")
	if _, err := os.Stat(done); err != nil {
		t.Errorf("the hook did not end: %v", err)
	}
}
