package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
)

// imageWorld is a world whose daemon keeps images.
func imageWorld(t *testing.T) (*world, *servertest.FakeImages) {
	t.Helper()
	w := newWorld(t)
	images := servertest.NewFakeImages()
	w.Options.Images = images
	w.Restart()
	return w, images
}

// lines reads the answer of a pull or an import.
func lines(t *testing.T, body string) (news []api.ImageEvent) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(body))
	dec.DisallowUnknownFields()
	for {
		var ev api.ImageEvent
		if err := dec.Decode(&ev); err == io.EOF {
			return news
		} else if err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		news = append(news, ev)
	}
}

func TestPullImage(t *testing.T) {
	w, images := imageWorld(t)
	resp, body := w.do(t, request{method: "POST", path: "/v1/images/pull", body: `{"ref":"debian:12"}`})
	news := lines(t, body)
	if resp.StatusCode != 200 || len(news) < 3 || news[0].Progress == nil || news[0].Progress.Phase != "resolve" {
		t.Fatalf("pull = %d %s, want progress", resp.StatusCode, body)
	}
	got := news[len(news)-1].Image
	if got == nil || got.Name != "debian:12" || got.Digest != servertest.FakeDigest("debian:12") || got.Config.WorkingDir != "/srv" {
		t.Errorf("the last line has image %+v", got)
	}
	if p := <-images.Pulls; p.Owner != fmt.Sprintf("uid:%d", os.Getuid()) || p.Auth != nil || p.Remote {
		t.Errorf("pull came as %+v", p)
	}
	if _, body := w.do(t, request{method: "GET", path: "/v1/images"}); count(t, body) != 1 {
		t.Errorf("list = %s, want one", body)
	}
	if resp, body := w.do(t, request{method: "GET", path: "/v1/images?ref=debian:12"}); resp.StatusCode != 200 || count(t, body) != 1 {
		t.Errorf("list of one = %d %s", resp.StatusCode, body)
	}
	if resp, _ := w.do(t, request{method: "GET", path: "/v1/images?ref=debian:11"}); resp.StatusCode != 404 {
		t.Errorf("list of one that is not = %d, want 404", resp.StatusCode)
	}
	if resp, body := w.do(t, request{method: "DELETE", path: "/v1/images?ref=debian:12"}); resp.StatusCode != 204 {
		t.Errorf("delete = %d %s", resp.StatusCode, body)
	}
	if _, body := w.do(t, request{method: "GET", path: "/v1/images"}); strings.TrimSpace(body) != "[]" {
		t.Errorf("list = %s, want []", body)
	}
}

func TestPullFails(t *testing.T) {
	w, _ := imageWorld(t)
	tests := []struct {
		name, body string
		status     int
		want       api.Error // of the last line, or of the whole answer
	}{
		{"before-progress", `{"ref":"nowhere:1"}`, 404, api.Error{Code: "not_found", Message: "image nowhere:1: the registry has none"}},
		{"after-progress", `{"ref":"broken:1"}`, 200, api.Error{Code: "invalid", Message: "layer aaaaaaaaaaaa: broken", Hint: "mend it"}},
		{"internal", `{"ref":"odd:1"}`, 200, api.Error{Code: "internal", Message: "internal error", Hint: sandbox.LogHint}},
		{"no-credentials", `{"ref":"private:1"}`, 403, api.Error{Code: "denied", Message: "image private:1: the registry wants to know who asks"}},
		{"wrong-credentials", `{"ref":"private:1","auth":{"username":"somebody","password":"x"}}`, 403, api.Error{Code: "denied", Message: "image private:1: the registry wants to know who asks"}},
		{"no-ref", `{}`, 400, api.Error{Code: "invalid", Message: "ref: from 1 to 512 bytes"}},
		{"long", `{"ref":"` + strings.Repeat("x", 513) + `"}`, 400, api.Error{Code: "invalid", Message: "ref: from 1 to 512 bytes"}},
		{"unknown", `{"ref":"a","tag":"b"}`, 400, api.Error{Code: "invalid", Message: `body: there is no field "tag"`}},
		{"unknown-below", `{"ref":"a","auth":{"token":"hunter2"}}`, 400, api.Error{Code: "invalid", Message: `body: there is no field "auth.token"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := w.do(t, request{method: "POST", path: "/v1/images/pull", body: tt.body})
			var got api.Error
			if resp.StatusCode == 200 {
				news := lines(t, body)
				if e := news[len(news)-1].Error; e != nil {
					got = *e
				}
			} else if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || resp.StatusCode != tt.status {
				t.Errorf("pull = %d %s, want %d (-want +got):\n%s", resp.StatusCode, body, tt.status, diff)
			}
			if strings.Contains(body, "hunter2") || strings.Contains(body, "/root") {
				t.Errorf("the answer tells too much: %s", body)
			}
		})
	}
	resp, body := w.do(t, request{method: "POST", path: "/v1/images/pull", body: `{"ref":"private:1","auth":{"username":"somebody","password":"hunter2"}}`})
	if news := lines(t, body); resp.StatusCode != 200 || news[len(news)-1].Image == nil {
		t.Errorf("pull with credentials = %d %s", resp.StatusCode, body)
	}
}

func TestImagePermissions(t *testing.T) {
	w, images := imageWorld(t)
	as := func(secret, method, path, body string) request {
		return request{tcp: true, method: method, path: path, body: body, header: map[string]string{"X-API-KEY": secret}}
	}
	if resp, body := w.do(t, as(w.full, "POST", "/v1/images/pull", `{"ref":"debian:12"}`)); resp.StatusCode != 200 {
		t.Fatalf("pull = %d %s", resp.StatusCode, body)
	}
	if p := <-images.Pulls; p.Owner != "key:full" || !p.Remote {
		t.Errorf("pull came as %+v, want it marked as remote", p)
	}
	images.Waste(servertest.FakeDigest("x"))
	tests := []struct {
		name   string
		req    request
		status int
		list   int // images in the answer, -1: not a list
	}{
		{"owner-lists", as(w.full, "GET", "/v1/images", ""), 200, 1},
		{"reader-lists", as(w.reader, "GET", "/v1/images", ""), 200, 1},
		{"reader-pulls", as(w.reader, "POST", "/v1/images/pull", `{"ref":"a"}`), 403, -1},
		{"reader-imports", as(w.reader, "POST", "/v1/images/import", `x`), 403, -1},
		{"reader-removes", as(w.reader, "DELETE", "/v1/images?ref=debian:12", ""), 403, -1},
		{"other-lists", as(w.other, "GET", "/v1/images", ""), 200, 0},
		{"other-finds", as(w.other, "GET", "/v1/images?ref=debian:12", ""), 404, -1},
		{"other-creates", as(w.other, "POST", "/v1/sandboxes", `{"image":"debian:12"}`), 404, -1},
		{"other-removes", as(w.other, "DELETE", "/v1/images?ref=debian:12", ""), 404, -1},
		{"key-collects", as(w.full, "POST", "/v1/images/gc", ""), 403, -1},
		{"no-key", request{tcp: true, method: "GET", path: "/v1/images"}, 401, -1},
		{"admin-collects", request{method: "POST", path: "/v1/images/gc"}, 200, -1},
		{"owner-still-lists", as(w.full, "GET", "/v1/images", ""), 200, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := w.do(t, tt.req)
			if resp.StatusCode != tt.status || tt.list >= 0 && count(t, body) != tt.list {
				t.Errorf("%s %s = %d %s, want %d", tt.req.method, tt.req.path, resp.StatusCode, body, tt.status)
			}
		})
	}
}

func TestImageParameters(t *testing.T) {
	w, _ := imageWorld(t)
	for _, c := range []request{
		{method: "GET", path: "/v1/images?name=a"},
		{method: "GET", path: "/v1/images?ref=a&ref=b"},
		{method: "GET", path: "/v1/images?ref="},
		{method: "DELETE", path: "/v1/images"},
		{method: "DELETE", path: "/v1/images?ref=a&force=1"},
		{method: "POST", path: "/v1/images/pull?ref=a", body: `{"ref":"a"}`},
		{method: "POST", path: "/v1/images/gc?all=1"},
		{method: "POST", path: "/v1/images/import?ref=a", body: "x", header: map[string]string{"Content-Type": "application/x-tar"}},
		{method: "POST", path: "/v1/images/import?name=", body: "x", header: map[string]string{"Content-Type": "application/x-tar"}},
		{method: "POST", path: "/v1/images/import", body: "x"}, // of another type
	} {
		if resp, body := w.do(t, c); resp.StatusCode != 400 {
			t.Errorf("%s %s = %d %s, want 400", c.method, c.path, resp.StatusCode, body)
		}
	}
}

func TestNoImages(t *testing.T) {
	w := newWorld(t)
	for _, c := range []request{
		{method: "GET", path: "/v1/images"},
		{method: "DELETE", path: "/v1/images?ref=a"},
		{method: "POST", path: "/v1/images/pull", body: `{"ref":"a"}`},
		{method: "POST", path: "/v1/images/import", body: "x", header: map[string]string{"Content-Type": "application/x-tar"}},
		{method: "POST", path: "/v1/images/gc"},
		{method: "POST", path: "/v1/sandboxes", body: `{"image":"debian:12"}`},
	} {
		resp, body := w.do(t, c)
		var e api.Error
		if err := json.Unmarshal([]byte(body), &e); err != nil || resp.StatusCode != 501 || e.Hint == "" {
			t.Errorf("%s %s = %d %s, want 501 with a hint", c.method, c.path, resp.StatusCode, body)
		}
	}
	if resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes", body: `{"image":"host"}`}); resp.StatusCode != 201 {
		t.Errorf("create of host = %d %s", resp.StatusCode, body)
	}
}

// slowImport sends an archive's start and leaves the rest open.
func slowImport(t *testing.T, ctx context.Context, w *world) (sent io.Writer, resp *http.Response) {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", w.Socket)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	r, pw := io.Pipe()
	t.Cleanup(func() { _ = pw.Close() })
	req, err := http.NewRequestWithContext(ctx, "POST", "http://unix/v1/images/import?name=mine", r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-tar")
	go func() { _, _ = pw.Write([]byte("tar")) }()
	if resp, err = tr.RoundTrip(req); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return pw, resp
}

// TestImportAnswersWhileItReads holds that progress comes before the archive
// has ended, and that a large one is read to its end.
func TestImportAnswersWhileItReads(t *testing.T) {
	w, _ := imageWorld(t)
	sent, resp := slowImport(t, t.Context(), w)
	sc := bufio.NewScanner(resp.Body)
	if !sc.Scan() || !strings.Contains(sc.Text(), `"download"`) {
		t.Fatalf("the first line is %q, %v", sc.Text(), sc.Err())
	}
	rest := bytes.Repeat([]byte("x"), 8<<20)
	if _, err := sent.Write(rest); err != nil {
		t.Fatal(err)
	}
	_ = sent.(io.Closer).Close()
	var last api.ImageEvent
	for sc.Scan() {
		last = api.ImageEvent{}
		if err := json.Unmarshal(sc.Bytes(), &last); err != nil {
			t.Fatal(err)
		}
	}
	if want := servertest.FakeDigest("tar" + string(rest)); last.Image == nil || last.Image.Digest != want || last.Image.Name != "mine" {
		t.Errorf("the last line is %+v, want %s", last, want)
	}
}

// TestGoneCallerEndsTheWork holds that whoever leaves takes the work along.
func TestGoneCallerEndsTheWork(t *testing.T) {
	w, images := imageWorld(t)
	t.Run("import", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		slowImport(t, ctx, w)
		cancel()
		if got := <-images.Cancelled; got != "import" {
			t.Errorf("cancelled %s", got)
		}
	})
	t.Run("pull", func(t *testing.T) {
		c, err := net.Dial("unix", w.Socket)
		if err != nil {
			t.Fatal(err)
		}
		body := `{"ref":"slow:1"}`
		fmt.Fprintf(c, "POST /v1/images/pull HTTP/1.1\r\nHost: unix\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if got := <-images.Cancelled; got != "slow:1" {
			t.Errorf("cancelled %s", got)
		}
	})
}

// TestSlowReaderHoldsNobodyUp holds that a pull ends although nobody reads of
// its progress.
func TestSlowReaderHoldsNobodyUp(t *testing.T) {
	w, images := imageWorld(t)
	c, err := net.Dial("unix", w.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"ref":"chatty:1"}`
	fmt.Fprintf(c, "POST /v1/images/pull HTTP/1.1\r\nHost: unix\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	owner := fmt.Sprintf("uid:%d", os.Getuid())
	servertest.Wait(t, "the end of the pull", func() bool {
		list, err := images.List(t.Context(), owner)
		return err == nil && len(list) == 1
	})
}

func TestTooManyPulls(t *testing.T) {
	w, images := imageWorld(t)
	var conns []net.Conn
	pull := func() string {
		c, err := net.Dial("unix", w.Socket)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		body := `{"ref":"slow:1"}`
		fmt.Fprintf(c, "POST /v1/images/pull HTTP/1.1\r\nHost: unix\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	for range 4 {
		if got := pull(); !strings.Contains(got, "200") {
			t.Fatalf("pull = %s", got)
		}
	}
	if got := pull(); !strings.Contains(got, "429") {
		t.Errorf("one pull too many = %s, want 429", got)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	for range 4 {
		<-images.Cancelled
	}
	servertest.Wait(t, "a free slot", func() bool {
		resp, _ := w.do(t, request{method: "POST", path: "/v1/images/pull", body: `{"ref":"debian:12"}`})
		return resp.StatusCode == 200
	})
}

// specManager takes every create, and remembers what came.
type specManager struct {
	server.Manager
	specs chan sandbox.Spec
}

func (m *specManager) Create(_ context.Context, c sandbox.Caller, spec sandbox.Spec, _ sandbox.SecretValues) (*sandbox.Sandbox, error) {
	m.specs <- spec
	return &sandbox.Sandbox{ID: "sb_x", Owner: c.Owner, Spec: spec, State: sandbox.StateRunning, Backend: "gvisor", Why: "process can't: no; gvisor is allowed and stronger"}, nil
}

func (m *specManager) Published(string) []sandbox.PortState { return nil }

func (m *specManager) List(context.Context, sandbox.Caller, sandbox.Filter) ([]*sandbox.Sandbox, error) {
	sb := &sandbox.Sandbox{Spec: sandbox.Spec{Image: "gone:1@" + servertest.FakeDigest("gone"), Isolation: "gvisor"}}
	return []*sandbox.Sandbox{sb, sb}, nil
}

// TestCreateOfImage holds what becomes of an image and of walls in a create.
func TestCreateOfImage(t *testing.T) {
	images := servertest.NewFakeImages()
	owner := fmt.Sprintf("uid:%d", os.Getuid())
	none := func(api.ImageProgress) {}
	alpine := "alpine@" + servertest.FakeDigest("alpine")
	for _, ref := range []string{"debian:12", alpine, "[::1]:5000/x:1"} {
		if _, err := images.Pull(t.Context(), server.Pull{Owner: owner, Ref: ref}, none); err != nil {
			t.Fatal(err)
		}
	}
	anon, err := images.Import(t.Context(), owner, "", strings.NewReader("anonymous"), none)
	if err != nil {
		t.Fatal(err)
	}
	m := &specManager{specs: make(chan sandbox.Spec, 1)}
	s := server.New(server.Options{Manager: m, Images: images})
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := s.Unix(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done; s.Close() })
	w := &world{Daemon: &servertest.Daemon{Socket: socket}}
	debian := servertest.FakeDigest("debian:12")
	odd := servertest.FakeDigest("[::1]:5000/x:1")
	alpineDigest := servertest.FakeDigest(alpine)
	short := strings.TrimPrefix(anon.Digest, "sha256:")[:12]
	tests := []struct {
		name, ref, spec, image, digest string
	}{
		{"default", "", "", "", ""},
		{"host", "host", "host", "host", ""},
		{"name", "debian:12", "debian:12@" + debian, "debian:12", debian},
		{"pinned-name", "debian:12@" + debian, "debian:12@" + debian, "debian:12", debian},
		{"another-name", "debian:stable@" + debian, "debian:stable@" + debian, "debian:stable", debian},
		{"digest", debian, "debian:12@" + debian, "debian:12", debian},
		{"pulled-by-digest", alpineDigest, "alpine@" + alpineDigest, "alpine", alpineDigest},
		{"odd-name", "[::1]:5000/x:1", odd[7:19] + "@" + odd, odd[7:19], odd},
		{"no-name", anon.Digest, short + "@" + anon.Digest, short, anon.Digest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body, _ := json.Marshal(api.CreateRequest{Image: tt.ref, Isolation: "process", Stronger: []string{"gvisor"}})
			resp, answer := w.do(t, request{method: "POST", path: "/v1/sandboxes", body: string(body)})
			if resp.StatusCode != 201 {
				t.Fatalf("create = %d %s", resp.StatusCode, answer)
			}
			spec := <-m.specs
			if spec.Image != tt.spec || spec.Isolation != "process" || !cmp.Equal(spec.Stronger, []string{"gvisor"}) {
				t.Errorf("spec = %+v, want image %q", spec, tt.spec)
			}
			var got api.Sandbox
			if err := json.Unmarshal([]byte(answer), &got); err != nil {
				t.Fatal(err)
			}
			if got.Image != tt.image || got.ImageDigest != tt.digest || (got.ImageConfig != nil) != (tt.digest != "") {
				t.Errorf("sandbox = %s", answer)
			}
			if got.Isolation != "gvisor" || got.IsolationAsked != "process" || !strings.Contains(got.IsolationReason, "stronger") {
				t.Errorf("isolation = %s", answer)
			}
		})
	}
	if resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes", body: `{"image":"nope:1"}`}); resp.StatusCode != 404 || !strings.Contains(body, "carboy image pull nope:1") {
		t.Errorf("create of what is not here = %d %s", resp.StatusCode, body)
	}
	// An image that can't be looked up does not hide its sandbox.
	if resp, body := w.do(t, request{method: "GET", path: "/v1/sandboxes"}); resp.StatusCode != 200 || count(t, body) != 2 {
		t.Errorf("list = %d %s", resp.StatusCode, body)
	}
}
