package backendtest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// testPackages: packages that the host brings while a sandbox runs, also
// where nobody may be root in it.
func testPackages(t *testing.T, s *suite) {
	w := s.open(t)
	own := func(sb *sandbox.Sandbox) {
		sb.Spec.Mounts = []sandbox.Mount{{Own: true, Target: "/workspace/.skills"}}
	}
	for _, tt := range []struct {
		name      string
		workspace func(t *testing.T) func(*sandbox.Sandbox)
	}{
		{"private", func(*testing.T) func(*sandbox.Sandbox) { return func(*sandbox.Sandbox) {} }},
		{"of-the-host", func(t *testing.T) func(*sandbox.Sandbox) {
			return over(t, sandbox.WorkspaceWritable, tree(t, map[string]string{"f": ""}))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := w.begin(t, tt.workspace(t), own)
			g := agent.New(func(ctx context.Context) (net.Conn, error) { return w.Dial(ctx, b.id, sandbox.GuestPort) })
			t.Cleanup(g.Close)
			b.says(t, "sleep 1000 >/dev/null 2>&1 & echo $! >/tmp/pid", "")
			put := func(name, owner, keep, text string) {
				t.Helper()
				files := map[string]string{"SKILL.md": text, "bin/run": "#!/bin/sh\necho ran\n"}
				if err := g.Replace(t.Context(), name, owner, keep, packageTar(t, files)); err != nil {
					t.Fatal(err)
				}
			}
			put("demo", "user", "", "one\n")
			put("fixed", "root", "", "two\n")
			b.says(t, "cd /workspace/.skills; demo/bin/run; cat */SKILL.md; stat -c '%a %u %n' . demo demo/SKILL.md fixed fixed/bin/run",
				"ran\none\ntwo\n755 0 .\n755 1000 demo\n644 1000 demo/SKILL.md\n755 0 fixed\n755 0 fixed/bin/run\n")
			b.says(t, `cd /workspace/.skills; for c in 'echo x >>fixed/SKILL.md' 'rm -rf fixed/bin' 'mv demo x' 'mkdir x' 'mv fixed/bin demo' 'mv ../.skills ../x' 'ln -s / x'; do
				sh -c "$c" 2>/dev/null && echo "it did: $c"; done; echo end`, "end\n")

			b.says(t, "cd /workspace/.skills/demo; echo more >notes; mkdir .venv; ln -s /etc/passwd .venv/p; ln -s /etc/passwd p", "")
			if got, want := fetched(t, g, "demo"), "demo/ demo/SKILL.md demo/bin/ demo/bin/run demo/notes demo/p->/etc/passwd"; got != want {
				t.Errorf("fetch: got %q, want %q", got, want)
			}
			put("demo", "user", "demo.conflict", "three\n")
			b.says(t, "cd /workspace/.skills; ls; cat demo/SKILL.md demo.conflict/notes; ls -d demo/notes 2>/dev/null; kill -0 $(cat /tmp/pid) && echo lives",
				"demo\ndemo.conflict\nfixed\nthree\nmore\nlives\n")
			if err := g.Remove(t.Context(), "demo.conflict"); err != nil {
				t.Error(err)
			}
			names, err := g.Names(t.Context())
			slices.Sort(names)
			if err != nil || strings.Join(names, " ") != "demo fixed" {
				t.Errorf("names: got %q, %v", names, err)
			}
			for name, err := range map[string]error{
				"outside":        g.Replace(t.Context(), "../x", "root", "", packageTar(t, nil)),
				"leads-out":      g.Replace(t.Context(), "demo", "root", "", packageTar(t, map[string]string{"../x": ""})),
				"remove-outside": g.Remove(t.Context(), ".."),
			} {
				if _, ok := errors.AsType[*agent.Refusal](err); !ok {
					t.Errorf("%s: got %v, want a refusal", name, err)
				}
			}
			if err := g.Fetch(t.Context(), "gone", nil, nil); !errors.Is(err, agent.ErrNotThere) {
				t.Errorf("one that is not there: got %v", err)
			}
		})
	}
	t.Run("no-place", func(t *testing.T) {
		b := w.begin(t)
		g := agent.New(func(ctx context.Context) (net.Conn, error) { return w.Dial(ctx, b.id, sandbox.GuestPort) })
		t.Cleanup(g.Close)
		if err := g.Replace(t.Context(), "demo", "user", "", packageTar(t, nil)); !errors.Is(err, agent.ErrNotThere) {
			t.Errorf("without a directory: got %v", err)
		}
		for _, script := range []string{"mkdir /workspace/.skills", "rmdir /workspace/.skills; ln -s /etc /workspace/.skills"} {
			b.says(t, script, "")
			if err := g.Replace(t.Context(), "demo", "user", "", packageTar(t, nil)); err == nil {
				t.Errorf("%s: got no error", script)
			}
		}
		b.says(t, "ls -d /etc/demo /workspace/.skills/demo 2>/dev/null; echo end", "end\n")
	})
}

// packageTar is a tar of files, each below the directories that lead to it.
func packageTar(t *testing.T, files map[string]string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		mode := int64(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// fetched lists the entries of a package as the host gets it.
func fetched(t *testing.T, g *agent.Guest, name string) string {
	t.Helper()
	var got []string
	err := g.Fetch(t.Context(), name, []string{".venv", ".git"}, func(r io.Reader) error {
		for tr := tar.NewReader(r); ; {
			h, err := tr.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			entry := h.Name
			if h.Linkname != "" {
				entry += "->" + h.Linkname
			}
			got = append(got, entry)
		}
	})
	if err != nil {
		t.Error(err)
	}
	return strings.Join(got, " ")
}
