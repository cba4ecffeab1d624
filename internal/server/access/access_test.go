package access_test

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/access"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

// fakeRuntime keeps what it was asked to run.
type fakeRuntime struct {
	access.Runtime
	callers []string
	specs   []session.Spec
	cmds    []session.Command
}

func (*fakeRuntime) ImageName(name string) string {
	return cmp.Or(name, sandbox.DefaultImage)
}

func (f *fakeRuntime) Exec(_ context.Context, c sandbox.Caller, spec session.Spec, cmd session.Command) (*session.Result, error) {
	f.callers, f.specs, f.cmds = append(f.callers, c.Owner), append(f.specs, spec), append(f.cmds, cmd)
	zero := 0
	return &session.Result{SessionID: spec.Key, Status: sessions.StatusCompleted, ExitCode: &zero, Stdout: []byte("\xff\xff"), StdoutBytes: 2}, nil
}

func TestExec(t *testing.T) {
	ws := t.TempDir()
	roots, err := hostroot.New(hostroot.Config{DefaultWorkspace: ws, AllowedMountRoots: []string{ws}})
	if err != nil {
		t.Fatal(err)
	}
	admin := access.Caller{Caller: sandbox.Caller{Owner: "uid:0", Admin: true}, HostPaths: true, HostImage: true}
	key := access.Caller{Caller: sandbox.Caller{Owner: "key:a"}, HostImage: true}
	image := access.Caller{Caller: sandbox.Caller{Owner: "key:b"}}
	mounts := []any{map[string]any{"host_path": ws, "mount_path": "/mnt/x"}}
	for _, tt := range []struct {
		name   string
		caller access.Caller
		spec   map[string]any
		want   sandbox.Kind
		host   string // of the workspace
	}{
		{"default-workspace", admin, nil, "", ws},
		{"named", admin, map[string]any{"host_path": ws, "extra_mounts": mounts}, "", ws},
		{"named-and-not-allowed", admin, map[string]any{"host_path": "/var/tmp"}, sandbox.Denied, ""},
		{"a-key-has-its-own", key, nil, "", ""},
		{"a-key-names-nothing", key, map[string]any{"host_path": nil}, "", ""},
		{"a-key-may-not-name", key, map[string]any{"host_path": ws}, sandbox.Denied, ""},
		{"a-key-may-not-mount", key, map[string]any{"extra_mounts": mounts}, sandbox.Denied, ""},
		{"a-key-without-the-machines-programs", image, nil, sandbox.Denied, ""},
		{"a-key-with-an-image", image, map[string]any{"image": "alpine"}, "", ""},
		{"the-key-is-said-beside", admin, map[string]any{"session_id": "other"}, sandbox.Invalid, ""},
		{"locked", admin, map[string]any{"timeout_sec": 1000}, "", ws},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rt := &fakeRuntime{}
			a, err := access.New(access.Options{Runtime: rt, Roots: roots})
			if err != nil {
				t.Fatal(err)
			}
			got, err := a.Exec(t.Context(), tt.caller, "s", sessions.ExecRequest{Command: "pwd", Payload: tt.spec})
			if sandbox.KindOf(err) != tt.want {
				t.Fatalf("Exec = %v, want kind %q", err, tt.want)
			}
			if err != nil {
				if len(rt.specs) > 0 || len(a.Errors(tt.caller)) > 1 {
					t.Errorf("what was refused ran: %v", rt.specs)
				}
				return
			}
			spec, cmd := rt.specs[0], rt.cmds[0]
			if rt.callers[0] != tt.caller.Owner || spec.Key != "s" || cmd.Line != "pwd" || spec.Workspace.HostPath != tt.host || cmd.Timeout > 2*time.Minute {
				t.Errorf("ran %+v in %+v for %s", cmd, spec, rt.callers[0])
			}
			if got.Stdout != "\uFFFD\uFFFD" || !got.OK {
				t.Errorf("Exec = %+v", got)
			}
		})
	}
}

func TestErrorsAreEachOwners(t *testing.T) {
	a, err := access.New(access.Options{Runtime: &fakeRuntime{}})
	if err != nil {
		t.Fatal(err)
	}
	one := access.Caller{Caller: sandbox.Caller{Owner: "one"}, HostImage: true}
	two := access.Caller{Caller: sandbox.Caller{Owner: "two"}, HostImage: true}
	_, err = a.Exec(t.Context(), one, "s", sessions.ExecRequest{Command: " "})
	if got := a.Errors(one); profile.Class(err) != langbot.ClassValidation || len(got) != 1 || got[0].Type != langbot.ClassValidation {
		t.Errorf("Errors = %+v after %v", got, err)
	}
	if got := a.Errors(two); len(got) != 0 {
		t.Errorf("another owner sees %+v", got)
	}
	for i := range 2000 { // owners that come and go leave nothing for good
		c := access.Caller{Caller: sandbox.Caller{Owner: fmt.Sprint(i)}, HostImage: true}
		_, _ = a.Exec(t.Context(), c, "s", sessions.ExecRequest{Command: " "})
	}
	if got := a.Errors(one); len(got) != 0 {
		t.Errorf("the oldest of 2,001 owners still has %v", got)
	}
}

// Where skills lie is told to who may name directories of the host alone.
func TestSkillsTellNoPath(t *testing.T) {
	root := t.TempDir()
	all, err := skill.Open(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := access.New(access.Options{Runtime: &fakeRuntime{}, Skills: &skill.Owners{Store: all, Own: "uid:0"}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	f, err := z.Create("pkg/SKILL.md")
	if err == nil {
		_, err = f.Write([]byte("---\nname: pkg\ndescription: d\n---\ntext\n"))
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	for owner, told := range map[string]bool{"uid:0": true, "key:a": false} {
		c := access.Caller{Caller: sandbox.Caller{Owner: owner}, HostPaths: told}
		made, err := a.InstallSkills(t.Context(), c, access.Upload{Zip: b.Bytes(), ZipQuery: skill.ZipQuery{Filename: "pkg.zip", Suffix: skill.DefaultSuffix}})
		if err != nil || len(made) != 1 {
			t.Fatalf("%s: install = %+v, %v", owner, made, err)
		}
		list, err := a.Skills(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		one, err := a.Skill(t.Context(), c, made[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range append(list, made[0], one) {
			if got := strings.HasPrefix(k.PackageRoot, root); got != told {
				t.Errorf("%s: %s lies at %q, want it told: %t", owner, k.Name, k.PackageRoot, told)
			}
		}
	}
}
