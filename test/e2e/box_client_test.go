package e2e

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// TestBoxClient has what a platform in Go does with contrib/boxservice beyond commands.
func TestBoxClient(t *testing.T) {
	t.Parallel()
	w := newBoxWorld(t, "process", nil)
	w.testWorkspaces(t)
	w.testSkills(t)
	w.testShared(t)
}

func (w *boxWorld) testWorkspaces(t *testing.T) {
	w.subtest(t, "workspaces-are-apart", func(t *testing.T) {
		conn := w.connect(t, boxservice.Options{Instance: "instance-1"})
		t.Cleanup(func() { _ = conn.Client().Shutdown(t.Context()) })
		scope := func(workspace string, generation int64) *boxservice.Client {
			return conn.Client().For(boxservice.Context{InstanceUUID: "instance-1", WorkspaceUUID: workspace, PlacementGeneration: generation})
		}
		a, b := scope("a", 1), scope("b", 1)
		for c, text := range map[*boxservice.Client]string{a: "of a", b: "of b"} {
			if r, err := c.Exec(t.Context(), boxservice.NewSpec("chat", "echo "+text+" > /tmp/note")); err != nil || r.SessionID != "chat" {
				t.Fatalf("got %+v, %v", r, err)
			}
		}
		if r, err := a.Exec(t.Context(), boxservice.NewSpec("chat", "cat /tmp/note")); err != nil || r.Stdout != "of a\n" {
			t.Errorf("a sees %+v, %v", r, err)
		}
		if list, err := b.List(t.Context()); err != nil || len(list) != 1 || list[0].SessionID != "chat" {
			t.Errorf("b has %+v, %v", list, err)
		}
		if _, err := b.StartProcess(t.Context(), "chat", boxservice.ProcessSpec{Command: "cat"}); err != nil {
			t.Fatal(err)
		}
		attach := func(c *boxservice.Client) error {
			at, err := c.Attach(t.Context(), "chat", "")
			if err == nil {
				at.Close()
			}
			return err
		}
		if err := attach(b); err != nil {
			t.Errorf("b at its own process: %v", err)
		}
		if err := attach(a); !errors.Is(err, boxservice.ErrProcessNotFound) {
			t.Errorf("a at b's process: %v", err)
		}
		if _, err := scope("b", 2).List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := b.List(t.Context()); err == nil {
			t.Error("an older generation is still served")
		}
		if list, err := scope("b", 2).List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("the older one's sessions are still there: %+v, %v", list, err)
		}
	})
}

func (w *boxWorld) testSkills(t *testing.T) {
	w.subtest(t, "skills-reach-their-session", func(t *testing.T) {
		no := false
		s, err := boxservice.NewService(boxservice.Config{Connect: boxservice.Options{Endpoint: "ws://" + w.addr}, SharesFilesystem: &no})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		s.Open(t.Context())
		runTool(t, s, chat("1"), "true") // the session is there before its skill
		archive := zipOf(t, map[string]string{
			"greet/SKILL.md": "---\nname: greet\ndescription: says hello\n---\nRun greet.sh.\n",
			"greet/greet.sh": "echo hello from a skill\n",
			"greet/data":     strings.Repeat("0123456789abcdef", 4096),
		})
		z := boxservice.Zip{Content: archive, Filename: "greet.zip"}
		if list, err := s.Client().PreviewZip(t.Context(), z); err != nil || len(list) != 1 || list[0].Name != "greet" {
			t.Fatalf("the preview has %+v, %v", list, err)
		}
		if list, err := s.Client().InstallZip(t.Context(), z); err != nil || len(list) != 1 || strings.TrimSpace(list[0].Instructions) != "Run greet.sh." {
			t.Fatalf("installed were %+v, %v", list, err)
		}
		if err := s.ReloadSkills(t.Context()); err != nil || len(s.Skills()) != 1 {
			t.Fatalf("there are %v, %v", s.Skills(), err)
		}
		if r := runTool(t, s, chat("2"), "sh /workspace/.skills/greet/greet.sh"); r.Stdout != "hello from a skill\n" {
			t.Errorf("got %+v", r)
		}
		if c, err := s.Client().ReadSkill(t.Context(), "greet", "greet.sh"); err != nil || c.Content != "echo hello from a skill\n" {
			t.Errorf("got %+v, %v", c, err)
		}
		if _, err := s.Client().WriteSkill(t.Context(), "greet", "sub/new", "x"); err != nil {
			t.Error(err)
		}
		if f, err := s.Client().SkillFiles(t.Context(), "greet", boxservice.SkillFilesOptions{Path: "sub"}); err != nil || len(f.Entries) != 1 || f.Entries[0].Name != "new" {
			t.Errorf("got %+v, %v", f, err)
		}
		text := "says goodbye"
		if got, err := s.Client().UpdateSkill(t.Context(), "greet", boxservice.SkillInput{Name: "greet", Description: &text}); err != nil || got.Description != text {
			t.Errorf("got %+v, %v", got, err)
		}
		if err := s.Client().DeleteSkill(t.Context(), "greet"); err != nil {
			t.Error(err)
		}
		if got, err := s.Client().Skill(t.Context(), "greet"); err != nil || got != nil {
			t.Errorf("afterwards there is %+v, %v", got, err)
		}
		if _, err := s.Client().InstallZip(t.Context(), boxservice.Zip{Content: []byte("no archive"), Filename: "x.zip"}); boxservice.Class(err) != api.ClassValidation {
			t.Errorf("what is no archive: %v", err)
		}
	})
}

func zipOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		f, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// testShared has a host see whether the runtime has its directories.
func (w *boxWorld) testShared(t *testing.T) {
	w.subtest(t, "shared-directory-is-known", func(t *testing.T) {
		root := filepath.Join(w.root, "host")
		name := ".langbot-box-volume-probe-" + strings.Repeat("ab", 16)
		text := []byte("a nonce")
		other := newBoxWorld(t, "process", map[string]any{"host_root": root})
		if err := os.MkdirAll(filepath.Join(root, "default"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "default", name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		if m, err := other.client.VerifyShared(t.Context(), name); err != nil || m.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("got %+v, %v", m, err)
		}
		if _, err := other.client.VerifyShared(t.Context(), "../../etc/passwd"); err == nil {
			t.Errorf("another file: %v", err)
		}
	})
}

// TestBoxChild has a service whose runtime is a child: the real one, over its
// standard input and output. Sessions outlive it.
func TestBoxChild(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	h, listen := newHome(t), freeAddr(t)
	// A certificate is for hosts that come by themselves: a child's relay is at
	// ws:// all the same.
	cert, key := filepath.Join(h.dir, "cert.pem"), filepath.Join(h.dir, "key.pem")
	ownCertificate(t, cert, key, 1)
	h.configureBox(map[string]any{"tls_cert": cert, "tls_key": key})
	open := func() *boxservice.Service {
		s, err := boxservice.NewService(boxservice.Config{
			HostRoot: filepath.Join(h.dir, "host"),
			Connect: boxservice.Options{
				Command: []string{carboy, "langbot", "serve", "--stdio", "--isolation", "process", "--host-root", filepath.Join(h.dir, "host")},
				Env:     h.env, Listen: listen,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		s.Open(t.Context())
		if !s.Available() {
			t.Fatalf("it is not available: %+v", s.Status(t.Context()))
		}
		return s
	}
	s := open()
	if !s.SharesFilesystem() {
		t.Error("it says that the child has a file system of its own")
	}
	runTool(t, s, chat("1"), "echo kept > /tmp/kept; echo shared > shared")
	if b, err := os.ReadFile(filepath.Join(h.dir, "host", "default", "shared")); err != nil || string(b) != "shared\n" {
		t.Errorf("the host has %q, %v", b, err)
	}
	if _, err := s.StartProcess(t.Context(), "person_test_user", boxservice.ProcessSpec{Command: "cat"}); err != nil {
		t.Fatal(err)
	}
	at, err := s.Client().Attach(t.Context(), "person_test_user", "")
	if err != nil {
		t.Fatal(err)
	}
	_ = at.WriteLine(t.Context(), []byte("ready"))
	if line, err := at.ReadLine(t.Context()); err != nil || string(line) != "ready" {
		t.Errorf("got %q, %v", line, err)
	}
	at.Close()
	began := time.Now()
	s.Close()
	if d := time.Since(began); d > patience.For(5*time.Second) {
		t.Errorf("its end took %v", d)
	}
	until(t, func() bool {
		return !slices.ContainsFunc(h.processes(), func(p string) bool { return strings.Contains(p, "--stdio") })
	})
	again := open()
	if r := runTool(t, again, chat("2"), "cat /tmp/kept"); r.Stdout != "kept\n" {
		t.Errorf("the next runtime's session has %+v", r)
	}
	if err := again.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
