package langbot_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/test/patience"
)

func TestActions(t *testing.T) {
	s := serve(t, nil)
	w := s.connect(t)
	if got := w.call("__ping", `{}`); got.Code != 0 || string(got.Data) != "{}" || got.Message != "success" {
		t.Errorf("ping = %+v", got)
	}
	w.call("box_nothing", `{}`).want(t, "ValueError: Action box_nothing not found")

	// As mid-2026's client writes it.
	out := w.call("box_exec", `{"session_id": " s1 ", "cmd": "echo hello", "workdir": "/workspace", "timeout_sec": 30, "network": "off", "env": {}, "image": "rockchin/langbot-sandbox:latest", "host_path": null, "host_path_mode": "rw", "mount_path": "/workspace", "extra_mounts": [], "persistent": false, "cpus": 1.0, "memory_mb": 512, "pids_limit": 128, "read_only_rootfs": true, "workspace_quota_mb": 0, "colour": "red"}`).fields(t)
	for name, want := range map[string]any{"session_id": "s1", "backend_name": "gvisor", "status": "completed", "exit_code": 0., "stdout": "hello", "stderr": "", "duration_ms": 12.} {
		if out[name] != want {
			t.Errorf("%s = %v, want %v", name, out[name], want)
		}
	}
	if n, _ := json.Marshal(out["notices"]); !strings.Contains(string(n), "colour") {
		t.Errorf("notices %s do not say that colour was ignored", n)
	}
	w.call("box_exec", `{"session_id":"s1","cmd":"x","network":"on","cpus":2}`).want(t, "BoxSessionConflictError: Box session s1 already exists with network=off")
	w.call("box_exec", `{"session_id":"","cmd":"x"}`).want(t, "BoxValidationError: ")
	w.call("box_exec", `{"session_id":"s2","cmd":"x","cpus":-1}`).want(t, "BoxValidationError: ")

	one := w.call("box_get_session", `{"session_id":"s1"}`).fields(t)
	if v, ok := one["host_path"]; !ok || v != nil {
		t.Errorf("host_path = %v, %v, want null", v, ok)
	}
	if one["created_at"] != "2026-06-10T12:00:00.123456Z" {
		t.Errorf("created_at = %v", one["created_at"])
	}
	if _, ok := one["managed_processes"]; ok {
		t.Error("managed_processes is there, and there are none")
	}
	w.call("box_get_session", `{"session_id":"nope"}`).want(t, "BoxSessionNotFoundError: session nope not found")
	w.call("box_get_session", `{}`).want(t, "BoxValidationError: session_id is missing")
	if n := len(w.call("box_get_sessions", `{}`).fields(t)["sessions"].([]any)); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}

	p := w.call("box_start_managed_process", `{"session_id":"s1","spec":{"command":"cat"}}`).fields(t)
	want := []string{"args", "attached", "command", "cwd", "env_keys", "exit_code", "exited_at", "process_id", "session_id", "started_at", "status", "stderr_preview"}
	if got := slices.Sorted(maps.Keys(p)); !slices.Equal(got, want) {
		t.Errorf("a process has %v, want %v", got, want)
	}
	if p["process_id"] != "default" || p["args"] == nil || p["env_keys"] == nil || p["exit_code"] != nil {
		t.Errorf("process = %v", p)
	}
	if one := w.call("box_get_session", `{"session_id":"s1"}`).fields(t); one["managed_process"] == nil || one["managed_processes"] == nil {
		t.Errorf("a session with a process = %v", one)
	}
	w.call("box_get_managed_process", `{"session_id":"s1"}`).fields(t)
	w.call("box_get_managed_process", `{"session_id":"s1","process_id":"y"}`).want(t, "BoxManagedProcessNotFoundError: session s1 has no managed process with process_id=y")
	if got := w.call("box_stop_managed_process", `{"session_id":"s1"}`).fields(t)["stopped"]; got != "default" {
		t.Errorf("stopped = %v", got)
	}
	if got := w.call("box_delete_session", `{"session_id":"s1"}`).fields(t)["deleted"]; got != "s1" {
		t.Errorf("deleted = %v", got)
	}
	w.call("box_delete_session", `{"session_id":"s1"}`).want(t, "BoxSessionNotFoundError: ")
	w.call("box_list_skills", `{}`).want(t, "BoxValidationError: this runtime keeps no skills")
	st := w.call("box_status", `{}`).fields(t)
	if st["active_sessions"] != 0. || st["session_ttl_sec"] != 300. || st["backend"].(map[string]any)["name"] != "gvisor" {
		t.Errorf("status = %v", st)
	}
	if got := w.call("box_get_backend_info", `{}`).fields(t); got["available"] != true {
		t.Errorf("backend = %v", got)
	}
	s.sessions.down = true
	if got := w.call("box_health", `{}`).fields(t); got["available"] != false || got["name"] != nil {
		t.Errorf("health without a wall = %v", got)
	}
}

func TestOutput(t *testing.T) {
	s := serve(t, nil)
	w := s.connect(t, api.HeaderInstance, "i")
	s.sessions.result = &session.Result{
		Status: sessions.StatusTimedOut, Stdout: bytes.Repeat([]byte("x"), 1<<20), StdoutBytes: 1<<20 + 7, Stderr: []byte(" a\xff\n"), StderrBytes: 4,
	}
	out := w.call("box_exec", `{"session_id":"s","cmd":"x"}`).fields(t)
	if got := out["stdout"].(string)[1<<20:]; got != "\n... [raw output clipped at 1048576 bytes, 7 bytes discarded]" {
		t.Errorf("the clip notice is %q", got)
	}
	if out["stderr"] != " a\ufffd\n" || out["stderr_base64"] != "IGH/Cg==" {
		t.Errorf("stderr = %q, %v", out["stderr"], out["stderr_base64"])
	}
	if v, ok := out["exit_code"]; !ok || v != nil {
		t.Errorf("exit_code = %v, %v, want null", v, ok)
	}
}

func TestInit(t *testing.T) {
	s := serve(t, nil)
	w := s.connect(t)
	got := w.call("box_init", `{"enabled":true,"backend":"nsjail","local":{"host_root":"./data/box","profile":"default","default_workspace":"","allowed_mount_roots":["./data/box","/tmp"]},"docker":{}}`)
	if string(got.Data) != `{"ignored":["backend","docker","enabled","local.allowed_mount_roots","local.profile"],"initialized":true}` {
		t.Errorf("init = %s", got.Data)
	}
	w.call("box_exec", `{"session_id":"s","cmd":"x","host_path":"/app/data/box/default"}`).fields(t)
	if got := s.sessions.declared["uid:0"]; !slices.Equal(got, []string{"/app/data/box"}) {
		t.Errorf("declared %v, want what the request has before ./data/box with it", got)
	}
	w.call("box_exec", `{"session_id":"t","cmd":"x","host_path":"/app/data/boxes"}`).fields(t)
	if got := s.sessions.declared["uid:0"]; len(got) != 0 {
		t.Errorf("declared %v for a path that only begins alike", got)
	}
}

func TestWhoMayConnect(t *testing.T) {
	open := serve(t, nil)
	closed := serve(t, func(o *langbot.Options) { o.Token = token })
	pinned := serve(t, func(o *langbot.Options) { o.Token, o.Instance = token, "inst-1" })
	named := serve(t, func(o *langbot.Options) { o.Hosts = []string{"box.example"} })
	tests := []struct {
		name    string
		s       *server
		headers []string
		status  int // 0: it connects
	}{
		{"no-token-asked-for", open, nil, 0},
		{"the-token", closed, []string{api.HeaderControlToken, token}, 0},
		{"no-token", closed, nil, http.StatusUnauthorized},
		{"another-token", closed, []string{api.HeaderControlToken, strings.ToUpper(token)}, http.StatusUnauthorized},
		{"the-token-and-more", closed, []string{api.HeaderControlToken, token + "0"}, http.StatusUnauthorized},
		{"page", open, []string{"Origin", "http://127.0.0.1"}, http.StatusForbidden},
		{"page-with-the-token", closed, []string{api.HeaderControlToken, token, "Origin", "null"}, http.StatusForbidden},
		{"page-by-its-site", open, []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"another-name-of-this-machine", open, []string{"Host", "rebound.example"}, http.StatusForbidden},
		{"a-name-that-is-configured", named, []string{"Host", "box.example:5410"}, 0},
		{"another-name-with-the-token", closed, []string{api.HeaderControlToken, token, "Host", "langbot_box:5410"}, 0},
		{"the-instance", pinned, []string{api.HeaderControlToken, token, api.HeaderInstance, "inst-1"}, 0},
		{"another-instance", pinned, []string{api.HeaderControlToken, token, api.HeaderInstance, "inst-2"}, http.StatusUnauthorized},
		{"no-instance-where-one-is-configured", pinned, []string{api.HeaderControlToken, token}, http.StatusUnauthorized},
		{"no-name-for-an-instance", open, []string{api.HeaderInstance, "../x"}, http.StatusUnauthorized},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, resp, err := tt.s.dial(t, "/rpc/ws", tt.headers...)
			switch {
			case tt.status == 0 && err != nil:
				t.Errorf("refused: %v", err)
			case tt.status != 0 && (c != nil || resp == nil || resp.StatusCode != tt.status):
				t.Errorf("%v, %v, want %d", resp, err, tt.status)
			}
		})
	}
	t.Run("the-first-instance-stays", func(t *testing.T) {
		s := serve(t, nil)
		s.connect(t, api.HeaderInstance, "first")
		if _, resp, err := s.dial(t, "/rpc/ws", api.HeaderInstance, "second"); err == nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("a second instance: %v", err)
		}
		s.connect(t, api.HeaderInstance, "first")
	})
	t.Run("a-relay-pins-none", func(t *testing.T) {
		s := serve(t, nil)
		if _, resp, err := s.dial(t, "/v1/sessions/x/managed-process/ws", api.HeaderInstance, "first"); err == nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("a relay of an instance that is not connected: %v", err)
		}
		s.connect(t, api.HeaderInstance, "second")
	})
}

func TestCheckListen(t *testing.T) {
	tests := []struct {
		addr  string
		token bool
		ok    bool
	}{
		{"127.0.0.1:5410", false, true},
		{"[::1]:5410", false, true},
		{"localhost:0", false, true},
		{"0.0.0.0:5410", false, false},
		{":5410", false, false},
		{"192.0.2.1:5410", false, false},
		{"0.0.0.0:5410", true, true},
		{"5410", true, false},
	}
	for _, tt := range tests {
		err := langbot.CheckListen(tt.addr, tt.token)
		if (err == nil) != tt.ok {
			t.Errorf("%s with token %v: %v", tt.addr, tt.token, err)
		}
	}
	for _, bad := range []string{"", "short", strings.Repeat("x", 31), strings.Repeat("x", 40) + " y", strings.Repeat("x", 40) + "\n"} {
		if err := langbot.CheckToken(bad); err == nil || len(bad) > 1 && strings.Contains(err.Error(), bad) {
			t.Errorf("token of %d characters: %v", len(bad), err)
		}
	}
}

func TestHealth(t *testing.T) {
	s := serve(t, nil)
	for path, want := range map[string]string{"/healthz": `"live":true`, "/readyz": `"ready":true`} {
		resp, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		_, _ = b.ReadFrom(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.Contains(b.String(), want) {
			t.Errorf("%s = %d %s", path, resp.StatusCode, b.String())
		}
	}
	down := serve(t, nil)
	down.sessions.down = true
	resp, err := http.Get(down.URL + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/readyz without a wall = %d", resp.StatusCode)
	}
}

// Mid-2026's client reads no message of over 1 MiB, and joins pieces; later ones
// read one of 16 MiB, and join nothing.
func TestLargeAnswers(t *testing.T) {
	s := serve(t, nil)
	big := bytes.Repeat([]byte("\\\""), 1<<19)
	s.sessions.result = &session.Result{Status: sessions.StatusCompleted, Stdout: big, StdoutBytes: int64(len(big)), Stderr: big, StderrBytes: int64(len(big))}
	t.Run("june", func(t *testing.T) {
		w := s.connect(t)
		w.c.SetReadLimit(1 << 20)
		w.send("box_exec", `{"session_id":"s","cmd":"x"}`, "")
		var all []byte
		for !bytes.HasSuffix(all, []byte("}")) || !json.Valid(all) { // no piece of the output ends so
			_, b, err := w.c.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > 64<<10 {
				t.Fatalf("a piece of %d bytes", len(b))
			}
			all = append(all, b...)
		}
		if len(all) < 4<<20 {
			t.Errorf("the answer has %d bytes", len(all))
		}
	})
	t.Run("head", func(t *testing.T) {
		w := s.connect(t, api.HeaderInstance, "i")
		out := w.about("box_exec", `{"session_id":"s","cmd":"x"}`, `{"instance_uuid":"i","workspace_uuid":"w","placement_generation":1}`).fields(t)
		if out["stdout"] != string(big) {
			t.Error("the output is not what was written")
		}
	})
}

// A large request of mid-2026's client comes in pieces; a later one's in
// fragments.
func TestLargeRequests(t *testing.T) {
	s := serve(t, nil)
	cmd := strings.Repeat("x", 300_000)
	m := `{"seq_id":5,"action":"box_exec","data":{"session_id":"s","cmd":"` + cmd + `"}}`
	t.Run("june", func(t *testing.T) {
		w := s.connect(t)
		for piece := range slices.Chunk([]byte(m), 64<<10) {
			if err := w.c.Write(t.Context(), websocket.MessageText, piece); err != nil {
				t.Fatal(err)
			}
		}
		if a := w.receive(); a.Seq != 5 || a.Code != 0 || s.sessions.cmd.Line != cmd {
			t.Errorf("answer %+v", a)
		}
	})
	t.Run("head", func(t *testing.T) {
		w := s.connect(t)
		to, err := w.c.Writer(t.Context(), websocket.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		for piece := range slices.Chunk([]byte(m), 64<<10) {
			if _, err := to.Write(piece); err != nil {
				t.Fatal(err)
			}
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
		if a := w.receive(); a.Seq != 5 || a.Code != 0 || s.sessions.cmd.Line != cmd {
			t.Errorf("answer %+v", a)
		}
	})
	t.Run("what-is-cut-off-swallows-nothing", func(t *testing.T) {
		w := s.connect(t)
		for _, bad := range []string{m[:100], m[:64<<10], "hello"} {
			if err := w.c.Write(t.Context(), websocket.MessageText, []byte(bad)); err != nil {
				t.Fatal(err)
			}
			w.call("__ping", `{}`).fields(t)
		}
	})
}

func TestShutdown(t *testing.T) {
	s := serve(t, nil)
	w := s.connect(t)
	head := s.connect(t, api.HeaderInstance, "i")
	const about = `{"instance_uuid":"i","workspace_uuid":"w","placement_generation":1}`
	w.call("box_create_session", `{"session_id":"mine"}`).fields(t)
	head.about("box_create_session", `{"session_id":"theirs"}`, about).fields(t)
	s.sessions.all["uid:7"] = map[string]sessions.SessionInfo{"another's": {}}
	s.sessions.all["uid:0"]["at the command line"] = sessions.SessionInfo{SessionID: "at the command line"}
	head.call("box_shutdown", `{}`).fields(t)
	if n := len(head.about("box_get_sessions", `{}`, about).fields(t)["sessions"].([]any)); n != 0 {
		t.Errorf("%d sessions of the host are left", n)
	}
	w.call("box_shutdown", `{}`).fields(t)
	if got := s.sessions.keys("uid:0"); len(got) != 1 || got[0] != "at the command line" {
		t.Errorf("left: %v", got)
	}
	if got := s.sessions.keys("uid:7"); len(got) != 1 {
		t.Error("sessions of nobody's that asked are gone")
	}
	w.call("__ping", `{}`).fields(t) // it goes on
}

func TestVanishedHostEndsItsCommands(t *testing.T) {
	s := serve(t, nil)
	s.sessions.block = make(chan struct{})
	w := s.connect(t)
	w.send("box_exec", `{"session_id":"s","cmd":"x"}`, "")
	<-s.sessions.begun
	_ = w.c.CloseNow()
	deadline := time.After(patience.For(10 * time.Second))
	for s.h.Busy() { // until its action has ended
		select {
		case <-deadline:
			t.Fatal("the command of a host that is gone goes on")
		default:
		}
	}
}
