package bottle_test

import (
	"archive/tar"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/bottle"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// inside is a guest agent that runs nothing, and remembers what it was asked for.
type inside struct {
	guestv1connect.UnimplementedExecServiceHandler
	did   []string // commands, each as one line, and "put PATH NAME,..."
	files map[string]string
	users []string
	// answer says how a command ends; nil: well.
	answer func(line string) *guestv1.Exit
	says   func(line string) string
	puts   func(path string) int // a status; 0: it is taken
}

func (g *inside) Start(_ context.Context, req *connect.Request[guestv1.StartRequest], out *connect.ServerStream[guestv1.Event]) error {
	line := strings.Join(req.Msg.GetCommand().GetArgv(), " ")
	g.did = append(g.did, line)
	g.users = append(g.users, req.Msg.GetCommand().GetUser())
	if g.says != nil {
		if text := g.says(line); text != "" {
			if err := out.Send(&guestv1.Event{Event: &guestv1.Event_Output_{Output: &guestv1.Event_Output{Stream: guestv1.Stream_STREAM_STDOUT, Data: []byte(text)}}}); err != nil {
				return err
			}
		}
	}
	exit := &guestv1.Exit{Reason: guestv1.Reason_REASON_EXITED}
	if g.answer != nil {
		if e := g.answer(line); e != nil {
			exit = e
		}
	}
	return out.Send(&guestv1.Event{Event: &guestv1.Event_Exit{Exit: exit}})
}

func (g *inside) archive(w http.ResponseWriter, r *http.Request) {
	at := r.URL.Query().Get("path")
	var names []string
	for t := tar.NewReader(r.Body); ; {
		h, err := t.Next()
		if err != nil {
			break
		}
		b, _ := io.ReadAll(t)
		names = append(names, h.Name)
		g.files[at] = string(b)
	}
	g.did = append(g.did, "put "+at+" "+strings.Join(names, ","))
	if g.puts != nil {
		if status := g.puts(at); status != 0 {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"message": "no room"}`)
			return
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"skipped": []any{}})
}

// dial serves g on connections that it makes.
func (g *inside) dial(t *testing.T) func(context.Context) (net.Conn, error) {
	mux := http.NewServeMux()
	mux.Handle(guestv1connect.NewExecServiceHandler(g))
	mux.HandleFunc("POST /carboy/archive", g.archive)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: mux, Protocols: p, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	}
}

// certificate is one in PEM, with the SHA-256 of its DER.
func certificate(t *testing.T) (text, sum string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(der)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), hex.EncodeToString(hash[:])
}

const definition = `
title = "Fake"
about = "of tests"
program = "fake"
[config]
dir = ".fake"
skills = "{{.Config}}/skills"
[run]
prompt_mode = "append_file"
prompt = ["--rules", "{{.PromptFile}}"]
bypass = ["--yolo"]
[access]
none = true
[[dir]]
path = "{{.Config}}"
error = "fake's home can't be made"
[[pre_copy]]
argv = ["find", "{{.Config}}", "-delete"]
error = "fake's old files can't be removed"
[[file]]
path = "{{.Config}}/auth.json"
content = "dummy"
error = "fake's credentials can't be written"
[[verify]]
argv = ["{{.Program}}", "status"]
error = "fake does not take its credentials"
`

// whole is a set-up with everything in it.
func whole(t *testing.T) *api.SetUp {
	t.Helper()
	host := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(host, []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &api.SetUp{
		Agent:      api.Agent{Name: "demo", Bottle: "dev", Provider: "fake", Program: []string{"/bin/fake"}, Dir: "/workspace"},
		Definition: definition, Bypass: true, Args: []string{"-p", "hi"},
		GitConfig: "[url \"http://127.0.0.1:9418/bot-bottle.git\"]\n\tinsteadOf = ssh://git@host/repo.git\n",
		GitUser:   api.GitUser{Name: "Eric Bauerfeld", Email: "eric@dideric.is"},
		Prompt:    "be brief", Skills: []string{"review"}, Work: &api.SetUpWork{},
		Copies: []api.SetUpCopy{{Source: host, Target: "/home/user/.local/bin/fake"}},
		Files:  []api.SetUpWrite{{Path: "~/notes/n.md", Content: "n"}},
	}
}

type world struct {
	*inside
	sb    *sandbox.Sandbox
	r     *bottle.Runner
	steps []string
	notes []string
	waits int
}

func newWorld(t *testing.T, trust string) *world {
	w := &world{inside: &inside{files: map[string]string{}}, sb: &sandbox.Sandbox{}}
	if trust != "none" {
		w.sb.Link = &sandbox.Link{Trust: trust}
	}
	w.says = func(line string) string {
		switch {
		case strings.Contains(line, "/etc/carboy/ca.crt"):
			return "\x00\n" + trust + "\x00\nothers\n" + trust
		case strings.Contains(line, "rev-parse"):
			return strings.Repeat("a", 40) + "\n"
		case strings.Contains(line, "did=none"):
			return "none\n"
		}
		return ""
	}
	w.r = &bottle.Runner{
		Open: os.Open,
		Skill: func(_ context.Context, name string, to io.Writer) error {
			tw := tar.NewWriter(to)
			if err := tw.WriteHeader(&tar.Header{Name: "SKILL.md", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(name))}); err != nil {
				return err
			}
			_, _ = io.WriteString(tw, name)
			return tw.Close()
		},
		Told: func(s api.SetUpStep) {
			if s.Done {
				w.steps = append(w.steps, s.Do)
			}
		},
		Pause: func(context.Context) error { w.waits++; return nil },
	}
	return w
}

func (w *world) run(t *testing.T, s *api.SetUp) (*sandbox.Agent, error) {
	t.Helper()
	f, err := w.r.SetUp(s)
	if err != nil {
		t.Fatal(err)
	}
	return f(t.Context(), w.sb, w.dial(t), func(ev sandbox.Event) { w.notes = append(w.notes, ev.Type+" "+ev.Message) })
}

// TestSetUp does all there is, in its order, as the sandbox's own user.
func TestSetUp(t *testing.T) {
	trust, sum := certificate(t)
	w := newWorld(t, trust)
	is, err := w.run(t, whole(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ca", "remotes", "git", "git", "prompt", "skill", "workspace", "copy", "write", "dir", "pre_copy", "file", "verify"}
	if !slices.Equal(w.steps, want) {
		t.Errorf("steps %q, want %q", w.steps, want)
	}
	if is.Authority != sum || is.Base != strings.Repeat("a", 40) || is.Prompt != "/home/user/.carboy-prompt.md" ||
		!slices.Equal(is.Command, []string{"/bin/fake", "--yolo", "--rules", "/home/user/.carboy-prompt.md", "-p", "hi"}) {
		t.Errorf("it is remembered as %+v", is)
	}
	if slices.ContainsFunc(w.users, func(u string) bool { return u != "" }) {
		t.Errorf("users %q, want the sandbox's own each time", w.users)
	}
	for at, text := range map[string]string{
		"/home/user/.carboy-prompt.md": "be brief", "/home/user/notes/n.md": "n", "/home/user/.fake/auth.json": "dummy", "/home/user/.fake/skills/review": "review",
	} {
		if w.files[at] != text {
			t.Errorf("%s has %q, want %q", at, w.files[at], text)
		}
	}
	if len(w.notes) != len(want) || !strings.HasPrefix(w.notes[0], "setup ca: ") || !strings.Contains(w.notes[0], sum) {
		t.Errorf("events %q", w.notes)
	}
}

// TestSetUpFails has each step fail in turn: the text is that step's own, and nothing comes after it.
func TestSetUpFails(t *testing.T) {
	trust, _ := certificate(t)
	for _, tt := range []struct{ name, line, put, want string }{
		{"ca", "/etc/carboy/ca.crt", "", "the gate's certificate is not in place inside: exit code 9: why"},
		{"remotes", "include.path", "", "git can't be told what stands for its remotes: exit code 9: why"},
		{"name", "user.name", "", "git's user.name can't be set: exit code 9: why"},
		{"email", "user.email", "", "git's user.email can't be set: exit code 9: why"},
		{"prompt", "", ".carboy-prompt.md", `the prompt can't be written: the sandbox refuses: "no room"`},
		{"skill", "", "skills/review", `the skill review can't be brought: the sandbox refuses: "no room"`},
		{"workspace", "safe.directory", "", "git can't be made ready inside: exit code 9: why"},
		{"copy", "", ".local/bin/fake", `the program can't be copied in: the sandbox refuses: "no room"`},
		{"write", "", "n.md", `~/notes/n.md can't be written: the sandbox refuses: "no room"`},
		{"dir", `chmod "$2"`, "", "fake's home can't be made: exit code 9: why"},
		{"pre_copy", "-delete", "", "fake's old files can't be removed: exit code 9: why"},
		{"file", "", "auth.json", `fake's credentials can't be written: the sandbox refuses: "no room"`},
		{"verify", "/bin/fake status", "", "fake does not take its credentials: exit code 9: why"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, trust)
			says := w.says
			hit := func(line string) bool { return tt.line != "" && strings.Contains(line, tt.line) }
			w.answer = func(line string) *guestv1.Exit {
				if hit(line) {
					return &guestv1.Exit{Reason: guestv1.Reason_REASON_EXITED, Code: 9}
				}
				return nil
			}
			w.says = func(line string) string {
				if hit(line) {
					return "why\n"
				}
				return says(line)
			}
			w.puts = func(at string) int {
				if tt.put != "" && strings.HasSuffix(at, tt.put) {
					return http.StatusInsufficientStorage
				}
				return 0
			}
			_, err := w.run(t, whole(t))
			if err == nil || err.Error() != tt.want {
				t.Fatalf("%v, want %s", err, tt.want)
			}
			last := w.did[len(w.did)-1]
			if !hit(last) && (tt.put == "" || !strings.Contains(last, tt.put)) {
				t.Errorf("it went on: %q", last)
			}
		})
	}
}

// TestSmolmachinesBottleExec runs a step again that was lost, after a pause, and never what ran out of time
// or memory, though that is 137 too.
func TestSmolmachinesBottleExec(t *testing.T) {
	for _, tt := range []struct {
		name   string
		code   int32
		reason guestv1.Reason
		times  int // how often it ends so
		runs   int
		ok     bool
	}{
		{"retries_on_sigkill", 137, guestv1.Reason_REASON_SIGNALLED, 1, 2, true},
		{"retries_once", 137, guestv1.Reason_REASON_EXITED, 2, 2, false},
		{"no_retry_on_success", 0, guestv1.Reason_REASON_EXITED, 1, 1, true},
		{"no_retry_on_other_error", 1, guestv1.Reason_REASON_EXITED, 1, 1, false},
		{"no_retry_on_time_out", 137, guestv1.Reason_REASON_TIMED_OUT, 1, 1, false},
		{"no_retry_on_out_of_memory", 137, guestv1.Reason_REASON_OUT_OF_MEMORY, 1, 1, false},
		{"no_retry_on_kill_by_a_caller", 137, guestv1.Reason_REASON_KILLED, 1, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, runs := newWorld(t, "none"), 0
			w.answer = func(line string) *guestv1.Exit {
				if !strings.Contains(line, "/bin/fake status") {
					return nil
				}
				if runs++; runs <= tt.times {
					return &guestv1.Exit{Code: tt.code, Reason: tt.reason}
				}
				return nil
			}
			_, err := w.run(t, whole(t))
			if (err == nil) != tt.ok || runs != tt.runs || w.waits != tt.runs-1 {
				t.Errorf("%d runs after %d pauses, %v; want %d, success %t", runs, w.waits, err, tt.runs, tt.ok)
			}
		})
	}
}

// TestProvisionCA is the seed's: the certificate is in place, once, or nothing goes on.
func TestProvisionCA(t *testing.T) {
	trust, sum := certificate(t)
	t.Run("egress_ca_always_installed", func(t *testing.T) {
		w := newWorld(t, trust)
		is, err := w.run(t, whole(t))
		if err != nil || is.Authority != sum {
			t.Fatalf("%+v, %v", is, err)
		}
		n := 0
		for _, line := range w.did {
			if strings.Contains(line, "/etc/carboy/ca.crt") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("it was looked at %d times", n)
		}
	})
	other, _ := certificate(t)
	for name, has := range map[string]string{
		"another is in its place": "\x00\n" + other + "\x00\n" + trust, "the bundle in use lacks it": "\x00\n" + trust + "\x00\n" + other, "nothing": "",
	} {
		w := newWorld(t, trust)
		w.says = func(string) string { return has }
		if _, err := w.run(t, whole(t)); err == nil || !strings.HasPrefix(err.Error(), "the gate's certificate is not in place inside") {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Run("dies_when_egress_cert_missing", func(t *testing.T) {
		w := newWorld(t, "")
		if _, err := w.run(t, whole(t)); err == nil || !strings.Contains(err.Error(), "the gate has no certificate") || len(w.did) > 0 {
			t.Errorf("%v, after %q", err, w.did)
		}
	})
}

// TestProvisionGit is the seed's: what a bottle does not have makes no call.
func TestProvisionGit(t *testing.T) {
	for _, tt := range []struct {
		name   string
		remote bool
		user   api.GitUser
		want   []string
	}{
		{"noop_when_no_cwd_and_no_git_entries", false, api.GitUser{}, nil},
		{"noop_when_no_git_user", false, api.GitUser{}, nil},
		{"writes_gitconfig_with_ip_port_form_for_smolmachines", true, api.GitUser{}, []string{
			"git config --global --replace-all include.path /home/user/.config/carboy/remotes.gitconfig ^/home/user/.config/carboy/remotes.gitconfig$",
		}},
		{"sets_name_and_email_as_node", false, api.GitUser{Name: "Eric Bauerfeld", Email: "eric@dideric.is"}, []string{
			"git config --global user.name Eric Bauerfeld", "git config --global user.email eric@dideric.is",
		}},
		{"name_only", false, api.GitUser{Name: "Bot"}, []string{"git config --global user.name Bot"}},
		{"email_only", false, api.GitUser{Email: "bot@example.com"}, []string{"git config --global user.email bot@example.com"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, s := newWorld(t, "none"), whole(t)
			s.Work, s.GitUser = nil, tt.user
			config := s.GitConfig
			if !tt.remote {
				s.GitConfig = ""
			}
			if _, err := w.run(t, s); err != nil {
				t.Fatal(err)
			}
			got := slices.DeleteFunc(slices.Clone(w.did), func(s string) bool { return !strings.HasPrefix(s, "git ") })
			if !slices.Equal(got, tt.want) {
				t.Errorf("calls %q, want %q", got, tt.want)
			}
			if has := w.files["/home/user/.config/carboy/remotes.gitconfig"]; tt.remote && has != config || !tt.remote && has != "" {
				t.Errorf("written: %q", has)
			}
		})
	}
}

// TestRefused: what can't be done is told before anything is.
func TestRefused(t *testing.T) {
	for want, change := range map[string]func(*api.SetUp){
		"setup: fake takes no skills":                      func(s *api.SetUp) { s.Definition = strings.Replace(s.Definition, "skills = ", "#", 1) },
		"setup: fake takes no prompt":                      func(s *api.SetUp) { s.Definition = strings.Split(s.Definition, "[run]")[0] + "[access]\nnone = true\n" },
		"setup: definition: ":                              func(s *api.SetUp) { s.Definition = "x = 1" },
		"setup: agent: base, prompt, command":              func(s *api.SetUp) { s.Agent.Base = "x" },
		"setup: agent: its texts are longer":               func(s *api.SetUp) { s.Agent.Program = []string{strings.Repeat("x", 5000)} },
		"setup: too many skills, copies, files":            func(s *api.SetUp) { s.Args = make([]string, 5000) },
		"setup: args: longer than 256 KiB together":        func(s *api.SetUp) { s.Args = []string{strings.Repeat("x", 300<<10)} },
		"setup: fake can't be led from elsewhere":          func(s *api.SetUp) { s.Remote = true },
		`setup: definition: "a/b" is not a name for an ag`: func(s *api.SetUp) { s.Agent.Provider = "a/b" },
	} {
		s := whole(t)
		change(s)
		_, err := new(bottle.Runner).SetUp(s)
		if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Kind != sandbox.Invalid || !strings.HasPrefix(e.Msg, want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestFilesStayBelowTheHome: no path of a file leads elsewhere.
func TestFilesStayBelowTheHome(t *testing.T) {
	for _, at := range []string{"~/../x", "/etc/x", "x", "~/a//b", "~/..", "~/"} {
		w, s := newWorld(t, "none"), whole(t)
		s.Files = []api.SetUpWrite{{Path: at, Content: "x"}}
		_, err := w.run(t, s)
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("%q can't be written", at)) {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// TestOtherWays: texts of a way that was not taken are left alone.
func TestOtherWays(t *testing.T) {
	const other = `
[[access.way]]
name = "key"
reaches = "api.example"
rule = [{hosts = ["api.example"]}]
secret = [{name = "KEY", header = "X-Key"}]
[[file]]
way = "key"
path = "~/other"
content = "{{.Nowhere}}"
error = "it can't be written"
`
	for _, ways := range [][]string{nil, {"key"}} {
		w, s := newWorld(t, "none"), whole(t)
		s.Definition, s.Ways = definition+other, ways
		if _, err := w.run(t, s); (err != nil) != (ways != nil) {
			t.Errorf("%v: %v", ways, err)
		}
	}
}
