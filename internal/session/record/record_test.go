package record_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/session/record"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

const good = `{"id":"bx_a","owner":"uid:1","key":"k","state":"live","sandbox":"box-a","spec":{},"image":"","workspace":{"kind":"private"},"created_at":"2026-01-02T03:04:05Z","last_used_at":"2026-01-02T03:04:05Z"}`

func TestParse(t *testing.T) {
	if _, err := record.Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":           "",
		"unknown-field":   strings.Replace(good, `"key"`, `"promise":1,"key"`, 1),
		"unknown-in-spec": strings.Replace(good, `"spec":{}`, `"spec":{"promise":1}`, 1),
		"more-follows":    good + "{}",
		"no-such-state":   strings.Replace(good, `"live"`, `"lively"`, 1),
		"no-owner":        strings.Replace(good, `"uid:1"`, `""`, 1),
		"no-key":          strings.Replace(good, `"k"`, `""`, 1),
		"no-sandbox":      strings.Replace(good, `"box-a"`, `""`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := record.Parse([]byte(text)); err == nil {
				t.Errorf("Parse = %+v, want an error", r)
			}
		})
	}
}

// older is a record as the daemon wrote it whose sessions were kept in the words
// of LangBot's Box.
const older = `{"id":"bx_a","owner":"uid:1","key":"k","state":"asleep","sandbox":"box-a","spec":{"session_id":"k","cmd":"","workdir":"","timeout_sec":0,"network":"on","env":null,"image":"rockchin/langbot-sandbox:latest","host_path":"/srv/a","host_path_mode":"rw","mount_path":"/workspace","extra_mounts":[{"host_path":"/srv/b","mount_path":"/b","mode":"ro"}],"persistent":true,"cpus":0.5,"memory_mb":256,"pids_limit":64,"read_only_rootfs":true,"workspace_quota_mb":10,"quota":"hard","workspace_inodes":100,"isolation":"process"},"image":"host","workspace":{"kind":"host","dir":{"path":"/srv/a","dev":1,"ino":2,"uid":3,"gid":4},"quota":"hard","limit":10485760},"created_at":"2026-01-02T03:04:05Z","last_used_at":"2026-01-02T03:04:05Z"}`

func TestParseOlder(t *testing.T) {
	got, err := record.Parse([]byte(older))
	if err != nil {
		t.Fatal(err)
	}
	want := request.Session{
		Key: "k", Isolation: "process", Network: "on", ReadOnlyRoot: true, CPUs: 0.5, Memory: 256 << 20, PIDs: 64, Persistent: true,
		Workspace: request.Workspace{HostPath: "/srv/a", Mode: "rw", Target: "/workspace", Size: 10 << 20, Inodes: 100, Quota: "hard"},
		Mounts:    []request.Mount{{HostPath: "/srv/b", Target: "/b", Mode: "ro"}},
	}
	if d := cmp.Diff(want, got.Spec); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	b, err := record.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	again, err := record.Parse(b)
	if d := cmp.Diff(got, again); err != nil || d != "" {
		t.Errorf("written anew: %v (-want +got):\n%s", err, d)
	}
	if r, err := record.Parse([]byte(strings.Replace(older, `"cmd"`, `"promise":1,"cmd"`, 1))); err == nil {
		t.Errorf("Parse of a promise that is not known = %+v", r)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(older))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := record.Parse(b)
		if err != nil {
			return
		}
		out, err := record.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := record.Parse(out)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		twice, _ := record.Marshal(again)
		if !bytes.Equal(out, twice) {
			t.Error(cmp.Diff(string(out), string(twice)))
		}
	})
}
