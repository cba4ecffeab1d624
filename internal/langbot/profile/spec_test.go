package profile_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// parse reads a request of session "s" with these further fields.
func parse(t *testing.T, fields string) (sessions.Spec, error) {
	t.Helper()
	doc := `{"session_id":"s"}`
	if fields != "" {
		doc = `{"session_id":"s",` + fields + `}`
	}
	spec, _, err := profile.ParseSpec([]byte(doc))
	if err != nil && sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("ParseSpec(%s) = %v, want kind %s", doc, err, sandbox.Invalid)
	}
	return spec, err
}

func TestParseSpecDefaults(t *testing.T) {
	got, err := parse(t, "")
	if err != nil {
		t.Fatal(err)
	}
	want := sessions.Spec{
		SessionID: "s", Workdir: "/workspace", TimeoutSec: 30, Network: "off", Env: map[string]string{},
		Image: "rockchin/langbot-sandbox:latest", HostPathMode: "rw", MountPath: "/workspace",
		ExtraMounts: []sessions.Mount{}, CPUs: 1, MemoryMB: 512, PIDsLimit: 128, ReadOnlyRootFS: true,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("ParseSpec (-want +got):\n%s", d)
	}
}

// What pydantic 2 makes of these, in its lax mode, was taken down from LangBot's
// own models; infinities and numbers beyond any machine are refused here alone.
func TestParseSpecNumbers(t *testing.T) {
	for in, want := range map[string]int{
		`"999"`: 999, `999.0`: 999, `true`: 1, `" 12 "`: 12, `"12.0"`: 12, `"1_000"`: 1000, `"+5"`: 5, `"007"`: 7,
		`"12.000"`: 12, `"+5.0"`: 5, `" 5.0 "`: 5, `1e3`: 1000,
		`999.5`: 0, `false`: 0, `"true"`: 0, `"1e3"`: 0, `"12.5"`: 0, `"-1"`: 0, `"0x10"`: 0, `""`: 0, `null`: 0,
		`[]`: 0, `0`: 0, `"١٢"`: 0, `"1__0"`: 0, `"_1"`: 0, `"1_"`: 0, `".0"`: 0, `"5."`: 0, `"NaN"`: 0,
		`1e19`: 0, `1000000000000000000000000000000`: 0, `"99999999999999999999"`: 0, `1e400`: 0, `-0.0`: 0,
	} {
		got, err := parse(t, `"timeout_sec":`+in)
		if (err == nil) != (want > 0) || got.TimeoutSec != want {
			t.Errorf("timeout_sec %s = %d, %v, want %d", in, got.TimeoutSec, err, want)
		}
	}
	for in, want := range map[string]float64{
		`true`: 1, `"1.5"`: 1.5, `" 2 "`: 2, `2`: 2, `"1e2"`: 100, `"1_0"`: 10, `0.25`: 0.25,
		`null`: 0, `"x"`: 0, `"0x1p3"`: 0, `"1,5"`: 0, `""`: 0, `0`: 0, `-1`: 0, `"inf"`: 0, `"nan"`: 0, `"Infinity"`: 0,
		`1e30`: 0, `{}`: 0, `"1e999"`: 0,
	} {
		got, err := parse(t, `"cpus":`+in)
		if (err == nil) != (want > 0) || got.CPUs != want {
			t.Errorf("cpus %s = %v, %v, want %v", in, got.CPUs, err, want)
		}
	}
}

func TestParseSpecTruth(t *testing.T) {
	words := map[string][]string{
		"yes": {`true`, `1`, `1.0`, `"true"`, `"True"`, `"TRUE"`, `"yes"`, `"Y"`, `"on"`, `"oN"`, `"1"`, `"t"`},
		"no":  {`false`, `0`, `0.0`, `"off"`, `"f"`, `"0"`, `"n"`, `"no"`, `"False"`},
		"bad": {`2`, `" true "`, `""`, `null`, `"enabled"`, `"1.0"`, `[]`, `{}`},
	}
	for want, list := range words {
		for _, in := range list {
			got, err := parse(t, `"persistent":`+in)
			if (err != nil) != (want == "bad") || got.Persistent != (want == "yes") {
				t.Errorf("persistent %s = %v, %v, want %s", in, got.Persistent, err, want)
			}
		}
	}
}

func TestParseSpecFields(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want string // of the error; "": none
		has  func(sessions.Spec) bool
	}{
		{`"session_id":" s "`, "", func(s sessions.Spec) bool { return s.SessionID == "s" }},
		{`"session_id":" "`, "session_id must not be empty", nil},
		{`"session_id":1`, "session_id: text is wanted, not 1", nil},
		{`"session_id":"a\nb"`, "control characters", nil},
		{`"session_id":"` + strings.Repeat("x", 1025) + `"`, "1024", nil},
		{`"cmd":" \n x\t　"`, "", func(s sessions.Spec) bool { return s.Cmd == "x" }},
		{`"cmd":null`, "cmd: text is wanted, not null", nil},
		{`"workdir":""`, "must be an absolute path inside the sandbox", nil},
		{`"workdir":null`, "workdir: text is wanted", nil},
		{`"workdir":" /a "`, "", func(s sessions.Spec) bool { return s.Workdir == "/a" }},
		{`"workdir":"/a\u0000"`, "not a usable path", nil},
		{`"mount_path":" /a "`, "", func(s sessions.Spec) bool { return s.Workdir == "/a" && s.MountPath == "/a" }},
		{`"workdir":null,"mount_path":"/a"`, "", func(s sessions.Spec) bool { return s.Workdir == "/a" }},
		{`"workdir":"","mount_path":" /x "`, "", func(s sessions.Spec) bool { return s.Workdir == "/x" }},
		{`"workdir":"/b","mount_path":"/a"`, "", func(s sessions.Spec) bool { return s.Workdir == "/b" }},
		{`"workdir":" ","mount_path":"/a"`, "workdir must be", nil},
		{`"mount_path":" "`, "mount_path must be", nil},
		{`"network":"on"`, "", func(s sessions.Spec) bool { return s.Network == "on" }},
		{`"network":"ON"`, `network: off or on is wanted, not "ON"`, nil},
		{`"network":null`, "network: off or on is wanted, not null", nil},
		{`"env":{"A":"x","N":1,"F":1.50,"T":true}`, "", func(s sessions.Spec) bool {
			return cmp.Equal(s.Env, map[string]string{"A": "x", "N": "1", "F": "1.50", "T": "True"})
		}},
		{`"env":null`, "env: an object is wanted", nil},
		{`"env":{"TOKEN":["hunter2"]}`, "env: TOKEN: text is wanted", nil},
		{`"env":{"A=B":"x"}`, "not the name of a variable", nil},
		{`"env":{"":"x"}`, "not the name of a variable", nil},
		{`"env":{"A":"hunter2\u0000"}`, "the value of A has a NUL", nil},
		{`"image":" x "`, "", func(s sessions.Spec) bool { return s.Image == " x " }},
		{`"image":null`, "image: text is wanted", nil},
		{`"host_path":null`, "", func(s sessions.Spec) bool { return s.HostPath == "" }},
		{`"host_path":""`, "host_path must be an absolute host path", nil},
		{`"host_path":"a"`, "host_path must be an absolute host path", nil},
		{`"host_path":" /a "`, "", func(s sessions.Spec) bool { return s.HostPath == "/a" }},
		{`"host_path":"C:\\a"`, "", func(s sessions.Spec) bool { return s.HostPath == `C:\a` }},
		{`"host_path":"c:/a"`, "", nil},
		{`"host_path":"\\\\srv\\x"`, "", nil},
		{`"host_path":"é:\\x"`, "", nil},
		{`"host_path":"C:a"`, "absolute host path", nil},
		{`"host_path":"CC:\\x"`, "absolute host path", nil},
		{`"host_path":":\\x"`, "absolute host path", nil},
		{`"host_path_mode":"rwx"`, "host_path_mode: none, ro or rw is wanted", nil},
		{
			`"extra_mounts":[{"host_path":" /a ","mount_path":" /b ","mode":"none","x":1},{"host_path":"/c","mount_path":"/d"}]`, "",
			func(s sessions.Spec) bool {
				return cmp.Equal(s.ExtraMounts, []sessions.Mount{
					{HostPath: "/a", MountPath: "/b", Mode: "none"}, {HostPath: "/c", MountPath: "/d", Mode: "rw"},
				})
			},
		},
		{`"extra_mounts":null`, "extra_mounts: a list is wanted, not null", nil},
		{`"extra_mounts":[{"host_path":"/a"}]`, "extra_mounts: entry 0: mount_path is missing", nil},
		{`"extra_mounts":[{"host_path":"/a","mount_path":"/b","mode":"x"}]`, "entry 0: mode", nil},
		{`"extra_mounts":[{"host_path":"a","mount_path":"/b"}]`, "absolute host path", nil},
		{`"extra_mounts":[1]`, "entry 0: an object is wanted, not 1", nil},
		{`"skill_name":" "`, "", func(s sessions.Spec) bool { return s.SkillName == "" }},
		{`"skill_name":"é-1_"`, "", func(s sessions.Spec) bool { return s.SkillName == "é-1_" }},
		{`"skill_name":"---"`, "skill_name can only contain", nil},
		{`"skill_name":"a b"`, "skill_name can only contain", nil},
		{`"skill_name":"` + strings.Repeat("x", 65) + `"`, "skill_name can only contain", nil},
		{`"memory_mb":"31"`, "memory_mb must be at least 32", nil},
		{`"memory_mb":1e12`, "memory_mb must be at most", nil},
		{`"read_only_rootfs":"no"`, "", func(s sessions.Spec) bool { return !s.ReadOnlyRootFS }},
		{`"on_timeout":"reset","quota":"hard","workspace_inodes":"10","isolation":"process"`, "", func(s sessions.Spec) bool {
			return s.OnTimeout == "reset" && s.Quota == "hard" && s.WorkspaceInodes == 10 && s.Isolation == "process"
		}},
		{`"on_timeout":null,"quota":null,"workspace_inodes":null,"isolation":null`, "", nil},
		{`"on_timeout":"burn"`, "on_timeout: keep or reset is wanted", nil},
		{`"quota":"firm"`, "quota: hard or soft is wanted", nil},
		{`"workspace_inodes":-1`, "workspace_inodes must be greater than or equal to 0", nil},
		{`"isolation":"../x"`, "not the name of a wall", nil},
		// Of several faults the first of the original's order is told.
		{`"cpus":0,"memory_mb":10,"pids_limit":0,"workspace_quota_mb":-1,"timeout_sec":0`, "timeout_sec must be greater than 0", nil},
	} {
		got, err := parse(t, tt.in)
		switch {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got error %v, want %q", tt.in, err, tt.want)
		case err == nil && tt.has != nil && !tt.has(got):
			t.Errorf("%s: got %+v", tt.in, got)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s: the error has a value of the environment: %v", tt.in, err)
		}
	}
}

func TestParseSpecIgnores(t *testing.T) {
	_, ignored, err := profile.ParseSpec([]byte(`{"session_id":"s","zebra":1,"bogus":{"x":[]}}`))
	if want := []string{"bogus", "zebra"}; err != nil || !cmp.Equal(ignored, want) {
		t.Errorf("ParseSpec = %v, %v, want %v", ignored, err, want)
	}
	for _, doc := range []string{``, `null`, `[]`, `{`, `{"session_id":"s"} x`, `{"session_id":"s"}{}`, `{"cmd":"x"}`} {
		if _, _, err := profile.ParseSpec([]byte(doc)); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("ParseSpec(%q) = %v, want kind %s", doc, err, sandbox.Invalid)
		}
	}
}

func TestParseTakesGoValues(t *testing.T) {
	type word string
	got, ignored, err := profile.Parse(map[string]any{
		"session_id": word("s"), "timeout_sec": uint8(7), "cpus": float32(2), "memory_mb": int64(64), "persistent": true,
		"env": map[string]string{"A": "b"}, "extra_mounts": []sessions.Mount{{HostPath: "/a", MountPath: "/b", Mode: "ro"}},
	})
	if err != nil || ignored != nil {
		t.Fatalf("Parse = %v, %v", ignored, err)
	}
	if got.TimeoutSec != 7 || got.CPUs != 2 || got.MemoryMB != 64 || !got.Persistent || got.Env["A"] != "b" || got.ExtraMounts[0].Mode != "ro" {
		t.Errorf("Parse = %+v", got)
	}
	if _, _, err := profile.Parse(map[string]any{"session_id": "s", "cmd": "echo \xff"}); err == nil {
		t.Error("Parse took a command that is not UTF-8")
	}
}

func TestSpecLimits(t *testing.T) {
	t.Run("test_box_spec_validates_resource_limits", func(t *testing.T) {
		for _, bad := range []string{`"cpus":0`, `"memory_mb":10`, `"pids_limit":0`, `"workspace_quota_mb":-1`} {
			if _, err := parse(t, `"cmd":"echo",`+bad); profile.Class(err) != langbot.ClassValidation {
				t.Errorf("%s: got %v, want %s", bad, err, langbot.ClassValidation)
			}
		}
		for _, good := range []string{`"cpus":0.1`, `"memory_mb":32`, `"pids_limit":1`, `"workspace_quota_mb":0`} {
			if _, err := parse(t, `"cmd":"echo",`+good); err != nil {
				t.Errorf("%s: %v", good, err)
			}
		}
	})
}

func TestBoxHostMountModeNone(t *testing.T) {
	spec := func(t *testing.T, mode, mount, workdir string) (sessions.Spec, error) {
		t.Helper()
		b, err := json.Marshal(map[string]string{
			"session_id": "test", "cmd": "echo hi", "host_path": "/home/user/data", "host_path_mode": mode,
			"mount_path": mount, "workdir": workdir,
		})
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := profile.ParseSpec(b)
		return s, err
	}
	rejected := func(mode, mount, workdir string) func(*testing.T) {
		return func(t *testing.T) {
			_, err := spec(t, mode, mount, workdir)
			if err == nil || !strings.Contains(err.Error(), "workdir must stay under mount_path") {
				t.Errorf("ParseSpec = %v, want an error about workdir", err)
			}
		}
	}
	t.Run("test_none_mode_is_valid_enum", func(t *testing.T) {
		if s, err := spec(t, "none", "/workspace", "/workspace"); err != nil || s.HostPathMode != sessions.MountNone {
			t.Errorf("ParseSpec = %q, %v", s.HostPathMode, err)
		}
	})
	t.Run("test_spec_with_none_mode_skips_workdir_check", func(t *testing.T) {
		if s, err := spec(t, "none", "/workspace", "/opt/custom"); err != nil || s.Workdir != "/opt/custom" {
			t.Errorf("ParseSpec = %q, %v", s.Workdir, err)
		}
	})
	t.Run("test_spec_with_rw_mode_requires_workspace_workdir", rejected("rw", "/workspace", "/opt/custom"))
	t.Run("test_spec_with_ro_mode_requires_workspace_workdir", rejected("ro", "/workspace", "/opt/custom"))
	t.Run("test_spec_with_custom_mount_path_allows_matching_workdir", func(t *testing.T) {
		s, err := spec(t, "rw", "/project", "/project/src")
		if err != nil || s.MountPath != "/project" || s.Workdir != "/project/src" {
			t.Errorf("ParseSpec = %+v, %v", s, err)
		}
	})
	t.Run("test_spec_with_custom_mount_path_rejects_outside_workdir", rejected("rw", "/project", "/workspace"))
	t.Run("a-name-that-only-begins-alike", rejected("rw", "/workspace", "/workspace2"))
}

func TestParseProcess(t *testing.T) {
	got, ignored, err := profile.ParseProcess([]byte(`{"command":" npx ","args":["a",1,true],"env":{"P":1},"cwd":"/x","memory_mb":"64","zeal":1}`))
	want := sessions.ProcessSpec{
		ProcessID: "default", Command: "npx", Args: []string{"a", "1", "True"}, Env: map[string]string{"P": "1"}, Cwd: "/x", MemoryMB: 64,
	}
	if d := cmp.Diff(want, got); err != nil || d != "" || !cmp.Equal(ignored, []string{"zeal"}) {
		t.Errorf("ParseProcess = %v, %v (-want +got):\n%s", ignored, err, d)
	}
	for _, bad := range []string{
		`{}`, `{"command":" "}`, `{"command":"x","cwd":"y"}`, `{"command":"x","args":"y"}`, `{"command":"x","memory_mb":-1}`,
		`{"command":"x","process_id":""}`, `{"command":"x","env":{"=":"y"}}`, `{"command":"x","args":["\u0000"]}`, `{"command":"x","args":[null]}`,
	} {
		if _, _, err := profile.ParseProcess([]byte(bad)); profile.Class(err) != langbot.ClassValidation {
			t.Errorf("ParseProcess(%s) = %v, want %s", bad, err, langbot.ClassValidation)
		}
	}
}

// What a client asks for is the same in our own terms, and no product overflows.
func TestTranslate(t *testing.T) {
	s, err := parse(t, `"cmd":"x","host_path":"/a","workspace_quota_mb":9,"extra_mounts":[{"host_path":"/b","mount_path":"/c","mode":"ro"}],"on_timeout":"reset","skill_name":"k"`)
	if err != nil {
		t.Fatal(err)
	}
	got, cmd := profile.Translate(s)
	want := request.Session{
		Key: s.SessionID, Network: "off", CPUs: 1, Memory: 512 << 20, PIDs: 128, ReadOnlyRoot: true, Skill: "k",
		Workspace: request.Workspace{HostPath: "/a", Mode: "rw", Target: "/workspace", Size: 9 << 20},
		Mounts:    []request.Mount{{HostPath: "/b", Target: "/c", Mode: "ro"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("session (-want +got):\n%s", d)
	}
	if d := cmp.Diff(request.Command{Line: "x", Dir: "/workspace", Env: map[string]string{}, Timeout: 30 * time.Second, Reset: true}, cmd); d != "" {
		t.Errorf("command (-want +got):\n%s", d)
	}
	for _, change := range []func(*sessions.Spec){
		func(s *sessions.Spec) { s.MemoryMB = -1<<44 + 64 },
		func(s *sessions.Spec) { s.MemoryMB = 1<<44 + 64 },
		func(s *sessions.Spec) { s.WorkspaceQuotaMB = -1 << 44 },
		func(s *sessions.Spec) { s.WorkspaceQuotaMB = 1 << 44 },
		func(s *sessions.Spec) { s.TimeoutSec = 1 << 55 },
		func(s *sessions.Spec) { s.TimeoutSec = -1<<55 + 30 },
	} {
		bad := s
		change(&bad)
		if profile.Validate(bad) == nil {
			t.Errorf("accepted: %+v", bad)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add([]byte(`{"session_id":"s","cmd":"x","timeout_sec":"999","env":{"A":1},"extra_mounts":[{"host_path":"/a","mount_path":"/b"}]}`))
	f.Add([]byte(`{"session_id":"s","cpus":1e400,"host_path":"C:\\x","skill_name":"é"}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		spec, ignored, err := profile.ParseSpec(doc)
		if err != nil {
			if profile.Class(err) != langbot.ClassValidation || len(err.Error()) > 2000 {
				t.Fatalf("ParseSpec = %s: %v", profile.Class(err), err)
			}
			return
		}
		// What was accepted is valid, and is read alike when it is written out.
		if err := profile.Validate(spec); err != nil {
			t.Fatalf("Validate of what was parsed: %v", err)
		}
		b, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		again, more, err := profile.ParseSpec(b)
		if d := cmp.Diff(spec, again); err != nil || d != "" || len(more) > 0 {
			t.Fatalf("parsed anew: %v, ignored %v (then %v), (-want +got):\n%s", err, ignored, more, d)
		}
	})
}
