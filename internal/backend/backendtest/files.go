package backendtest

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
)

func testFiles(t *testing.T, s *suite) {
	b := s.open(t).begin(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, *instance)
	}{
		{"write-and-read", writeAndRead},
		{"hostile-names", hostileNames},
		{"out-of-reach", outOfReach},
		{"large", largeFile},
		{"services", fileServices},
		{"service-errors", fileErrors},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, b) })
	}
	t.Run("as-root", func(t *testing.T) { filesAsRoot(t, s, b) })
}

func (b *instance) request(t *testing.T, method, user, path string, body io.Reader) (int, string) {
	t.Helper()
	q := url.Values{"path": {path}}
	if user != "" {
		q.Set("username", user)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://guest/files?"+q.Encode(), body)
	must(t, err)
	if body != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	res, err := b.http.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, string(text)
}

func (b *instance) put(t *testing.T, path, text string) {
	t.Helper()
	if status, body := b.request(t, http.MethodPost, "", path, strings.NewReader(text)); status != http.StatusOK {
		t.Fatalf("write %q: status %d: %s", path, status, body)
	}
}

func (b *instance) get(t *testing.T, path string) string {
	t.Helper()
	status, body := b.request(t, http.MethodGet, "", path, nil)
	if status != http.StatusOK {
		t.Fatalf("read %q: status %d: %s", path, status, body)
	}
	return body
}

// What the file service writes, commands see as their own, and the other way.
func writeAndRead(t *testing.T, b *instance) {
	b.put(t, "/workspace/new/dir/f", "from outside\n")
	b.says(t, "cd /workspace/new; cat dir/f; stat -c '%u %g %a' . dir dir/f", "from outside\n1000 1000 755\n1000 1000 755\n1000 1000 644\n")
	b.sh(t, "", "printf inside > ~/g; chmod 600 ~/g")
	for _, path := range []string{"/home/user/g", "~/g", "g"} {
		if got := b.get(t, path); got != "inside" {
			t.Errorf("%s has %q", path, got)
		}
	}
	b.put(t, "~/g", "replaced")
	b.says(t, "cat ~/g; stat -c ' %a' ~/g", "replaced 600\n")
	b.put(t, "/tmp/empty", "")
	b.says(t, "stat -c %s /tmp/empty", "0\n")
}

func hostileNames(t *testing.T, b *instance) {
	names := []string{
		"-rf", "a b", "new\nline", "tab\t", "\x1b[31mred", "ünï", "bad\xff\xfe", "'\"`$(id)", "*", "..x", "...",
		strings.Repeat("n", 255), "%2e%2e", "con:aux|?",
	}
	for _, name := range names {
		b.put(t, "/workspace/names/"+name, name)
		if got := b.get(t, "/workspace/names/"+name); got != name {
			t.Errorf("%q has %q", name, got)
		}
	}
	b.says(t, "cd /workspace/names && ls -A | wc -c", fmt.Sprintln(total(names)))
	for name, status := range map[string]int{
		strings.Repeat("n", 256):    http.StatusBadRequest,
		"zero\x00byte":              http.StatusBadRequest,
		"names/../../etc/x":         http.StatusForbidden, // /etc is root's
		"names/-rf/below-a-file":    http.StatusBadRequest,
		strings.Repeat("d/", 2100):  http.StatusBadRequest,
		"/proc/self/no-such-file":   http.StatusForbidden,
		"/dev/full":                 http.StatusBadRequest,
		"../../run/carboy/anything": http.StatusForbidden,
	} {
		path := name
		if !strings.HasPrefix(name, "/") {
			path = "/workspace/" + name
		}
		got, body := b.request(t, http.MethodPost, "", path, strings.NewReader("x"))
		if got != status && (got < 400 || got >= 500) {
			t.Errorf("write %.60q: status %d: %s", name, got, body)
		}
	}
}

func total(names []string) int {
	n := 0
	for _, name := range names {
		n += len(name) + 1
	}
	return n
}

// The service goes nowhere that its user could not.
func outOfReach(t *testing.T, b *instance) {
	b.sh(t, "", `cd /workspace && ln -s /etc/shadow link && ln -s /root dir && ln -s /proc/1/environ env && ln -s /run/carboy run
ln -s loop loop && mkfifo fifo && mkdir -p closed && echo x > closed/f && chmod 0 closed`)
	// The agent's configuration lies there in weakened builds alone.
	for _, path := range []string{
		"/etc/shadow", "link", "/root/.profile", "dir/.profile", "env", "run/config.json", "/run/carboy/config.json",
		"loop", "fifo", "closed/f", "/proc/1/mem", "/dev/zero", "/workspace",
	} {
		if !strings.HasPrefix(path, "/") {
			path = "/workspace/" + path
		}
		if status, body := b.request(t, http.MethodGet, "user", path, nil); status < 400 || status >= 500 {
			t.Errorf("read %s: status %d: %.200q", path, status, body)
		}
	}
	for _, path := range []string{"/etc/passwd", "/usr/bin/x", "/root/x", "/workspace/link", "/workspace/dir/x", "/workspace/closed/g", "/sys/x"} {
		if status, body := b.request(t, http.MethodPost, "user", path, strings.NewReader("x")); status < 400 || status >= 500 {
			t.Errorf("write %s: status %d: %.200q", path, status, body)
		}
	}
	if status, _ := b.request(t, http.MethodGet, "eve", "/etc/passwd", nil); status != http.StatusUnauthorized {
		t.Errorf("as nobody known: status %d", status)
	}
	// The same way leads where the user may go.
	b.sh(t, "", "cd /workspace && ln -s /etc/passwd allowed && chmod 755 closed")
	for _, path := range []string{"/workspace/allowed", "/workspace/closed/f"} {
		b.get(t, path)
	}
}

func largeFile(t *testing.T, b *instance) {
	const size = 64 << 20
	sum := sha256.New()
	data := io.TeeReader(io.LimitReader(rand.New(rand.NewSource(1)), size), sum) //nolint:gosec // no secret: bytes to compare
	if status, body := b.request(t, http.MethodPost, "", "/workspace/large", data); status != http.StatusOK {
		t.Fatalf("write: status %d: %s", status, body)
	}
	want := fmt.Sprintf("%x", sum.Sum(nil))
	b.says(t, "sha256sum < /workspace/large | cut -d' ' -f1", want+"\n")
	if got := fmt.Sprintf("%x", sha256.Sum256([]byte(b.get(t, "/workspace/large")))); got != want {
		t.Errorf("read back with digest %s, want %s", got, want)
	}
	b.sh(t, "", "rm /workspace/large")
}

// as names the user of a call.
func as[T any](user string, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	if user != "" {
		req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
	return req
}

func fileServices(t *testing.T, b *instance) {
	ctx := t.Context()
	dir, err := b.files.MakeDir(ctx, as("user", &filesystem.MakeDirRequest{Path: "/workspace/svc/a/b"}))
	must(t, err)
	if e := dir.Msg.GetEntry(); e.GetType() != filesystem.FileType_FILE_TYPE_DIRECTORY || e.GetOwner() != "user" || e.GetMode()&0o777 != 0o755 {
		t.Errorf("MakeDir = %v", e)
	}
	b.sh(t, "", "cd /workspace/svc && printf 12345 > a/f && chmod 640 a/f && ln -s f a/l && touch a/b/deep")
	st, err := b.files.Stat(ctx, as("", &filesystem.StatRequest{Path: "/workspace/svc/a/f"}))
	must(t, err)
	if e := st.Msg.GetEntry(); e.GetSize() != 5 || e.GetMode()&0o777 != 0o640 || e.GetOwner() != "user" || e.GetName() != "f" {
		t.Errorf("Stat = %v", e)
	}
	names := func(depth uint32) []string {
		res, err := b.files.ListDir(ctx, as("", &filesystem.ListDirRequest{Path: "/workspace/svc/a", Depth: depth}))
		must(t, err)
		var names []string
		for _, e := range res.Msg.GetEntries() {
			names = append(names, strings.TrimPrefix(e.GetPath(), "/workspace/svc/a/"))
		}
		slices.Sort(names)
		return names
	}
	if got, want := names(1), []string{"b", "f", "l"}; !slices.Equal(got, want) {
		t.Errorf("ListDir = %q, want %q", got, want)
	}
	if got, want := names(2), []string{"b", "b/deep", "f", "l"}; !slices.Equal(got, want) {
		t.Errorf("ListDir, two levels = %q, want %q", got, want)
	}
	moved, err := b.files.Move(ctx, as("", &filesystem.MoveRequest{Source: "/workspace/svc/a", Destination: "/workspace/svc/z/y"}))
	must(t, err)
	if e := moved.Msg.GetEntry(); e.GetPath() != "/workspace/svc/z/y" {
		t.Errorf("Move = %v", e)
	}
	b.says(t, "cd /workspace/svc && find . | sort | tr '\\n' ' '", ". ./z ./z/y ./z/y/b ./z/y/b/deep ./z/y/f ./z/y/l ")
	for range 2 { // what is gone is removed already
		_, err = b.files.Remove(ctx, as("", &filesystem.RemoveRequest{Path: "/workspace/svc/z"}))
		must(t, err)
	}
	b.says(t, "ls -A /workspace/svc", "")
}

func fileErrors(t *testing.T, b *instance) {
	ctx := t.Context()
	_, err := b.files.Stat(ctx, as("", &filesystem.StatRequest{Path: "/no/such"}))
	wantCode(t, "Stat of nothing", err, connect.CodeNotFound)
	_, err = b.files.ListDir(ctx, as("", &filesystem.ListDirRequest{Path: "/etc/passwd", Depth: 1}))
	wantCode(t, "ListDir of a file", err, connect.CodeInvalidArgument)
	b.sh(t, "", "mkdir -m 0 "+closedDir)
	_, err = b.files.ListDir(ctx, as("", &filesystem.ListDirRequest{Path: closedDir, Depth: 1}))
	wantCode(t, "ListDir of what is closed", err, connect.CodePermissionDenied)
	_, err = b.files.MakeDir(ctx, as("", &filesystem.MakeDirRequest{Path: "/workspace"}))
	wantCode(t, "MakeDir of what is there", err, connect.CodeAlreadyExists)
	_, err = b.files.MakeDir(ctx, as("", &filesystem.MakeDirRequest{Path: "/etc/x"}))
	wantCode(t, "MakeDir in root's", err, connect.CodePermissionDenied)
	_, err = b.files.Move(ctx, as("", &filesystem.MoveRequest{Source: "/etc/passwd", Destination: "/workspace/p"}))
	if err == nil {
		t.Error("root's file was moved")
	}
	_, err = b.files.Remove(ctx, as("", &filesystem.RemoveRequest{Path: "/usr/bin/env"}))
	wantCode(t, "Remove of root's", err, connect.CodePermissionDenied)
	_, err = b.files.Stat(ctx, as("eve", &filesystem.StatRequest{Path: "/"}))
	wantCode(t, "an unknown user", err, connect.CodeUnauthenticated)
}

func filesAsRoot(t *testing.T, s *suite, b *instance) {
	status, body := b.request(t, http.MethodPost, "root", "/etc/carboy-conformance", strings.NewReader("root's"))
	_, err := b.files.Stat(t.Context(), as("root", &filesystem.StatRequest{Path: "/root"}))
	if !s.Root {
		if status != http.StatusForbidden {
			t.Errorf("status %d: %s", status, body)
		}
		wantCode(t, "Stat as root", err, connect.CodePermissionDenied)
		return
	}
	if status != http.StatusOK || err != nil {
		t.Errorf("status %d: %s; Stat: %v", status, body, err)
	}
	b.says(t, "cat /etc/carboy-conformance; stat -c ' %u' /etc/carboy-conformance", "root's 0\n")
}
