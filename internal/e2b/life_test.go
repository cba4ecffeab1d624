package e2b_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestLife(t *testing.T) {
	r := newRig(t)
	r.json(t, "POST", "/sandboxes", `{"templateID":"base","timeout":60}`, 201, nil)
	sb := r.instances[0]
	path := "/sandboxes/" + sb.ID
	ends := func(want time.Duration) {
		t.Helper()
		if got := sb.ExpiresAt.Sub(r.now); got != want {
			t.Errorf("it ends in %v, want %v", got, want)
		}
	}
	r.json(t, "POST", path+"/timeout", `{"timeout":5}`, 204, nil)
	ends(5 * time.Second)
	r.json(t, "POST", path+"/timeout", `{}`, 400, nil)
	r.json(t, "POST", path+"/refreshes", `{"duration":100}`, 204, nil)
	ends(100 * time.Second)
	r.json(t, "POST", path+"/refreshes", "", 204, nil)
	ends(100 * time.Second) // it is never shortened
	r.json(t, "POST", path+"/refreshes", `{"duration":3601}`, 400, nil)
	r.json(t, "POST", path+"/connect", "", 400, nil)
	r.json(t, "POST", path+"/connect", `{"timeout":1}`, 200, nil)
	ends(100 * time.Second)
	r.json(t, "DELETE", path, "", 204, nil)
	r.json(t, "DELETE", path, "", 404, nil)
	r.json(t, "GET", "/sandboxes/box-0", "", 404, nil) // names are not E2B's
}

func TestPause(t *testing.T) {
	r := newRig(t)
	rec := r.json(t, "POST", "/sandboxes", `{"templateID":"base","timeout":60,"autoPause":true}`, 201, nil)
	if n := rec.Header().Get("Carboy-Notice"); !strings.Contains(n, "autoPause") {
		t.Errorf("the answer to autoPause says %q", n)
	}
	sb := r.instances[0]
	path := "/sandboxes/" + sb.ID
	detail := func() (got struct {
		State, EndAt string
		Lifecycle    struct{ OnTimeout string }
	},
	) {
		t.Helper()
		r.json(t, "GET", path, "", 200, &got)
		return got
	}
	if d := detail(); sb.Spec.OnExpiry != sandbox.OnExpiryPause || d.Lifecycle.OnTimeout != "pause" {
		t.Errorf("on timeout %q, shown as %q; want a pause", sb.Spec.OnExpiry, d.Lifecycle.OnTimeout)
	}
	for _, c := range []struct{ name, pause, notice, resume, body, ends string }{
		{"as-clients-do", `{"memory":true}`, "processes are not", "/connect", `{"timeout":100}`, "1m40s"},
		{"files-alone", `{"memory":false}`, "", "/resume", "", "15s"},
		{"without-body", "", "processes are not", "/resume", `{"timeout":7,"memory":false}`, "7s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := r.json(t, "POST", path+"/pause", c.pause, 204, nil)
			if n := rec.Header().Get("Carboy-Notice"); !strings.Contains(n, c.notice) || (n == "") != (c.notice == "") {
				t.Errorf("notice %q, want %q", n, c.notice)
			}
			r.json(t, "POST", path+"/pause", c.pause, 409, nil)
			if d := detail(); d.State != "paused" || d.EndAt != sb.EndedAt.Format(time.RFC3339) {
				t.Errorf("paused, it is shown as %+v", d)
			}
			r.json(t, "POST", path+"/timeout", `{"timeout":9}`, 404, nil)
			r.json(t, "POST", path+"/refreshes", "", 404, nil)
			r.json(t, "POST", path+c.resume, c.body, 201, nil)
			if got := sb.ExpiresAt.Sub(r.now).String(); sb.State != sandbox.StateRunning || got != c.ends {
				t.Errorf("resumed, it is %s and ends in %s, want %s", sb.State, got, c.ends)
			}
			r.json(t, "POST", path+"/resume", c.body, 409, nil)
		})
	}
	r.json(t, "POST", path+"/pause", "", 204, nil)
	r.json(t, "POST", path+"/resume", `{"autoPause":false}`, 201, nil)
	if sb.Spec.OnExpiry != sandbox.OnExpiryRemove || detail().Lifecycle.OnTimeout != "kill" {
		t.Errorf("autoPause of a resume was not taken: %s", sb.Spec.OnExpiry)
	}
	for _, bad := range [][2]string{{"/pause", `{"memory":1}`}, {"/pause", `{"keep":true}`}, {"/resume", `{"timeout":-1}`}, {"/connect", `{"memory":true}`}} {
		r.json(t, "POST", path+bad[0], bad[1], 400, nil)
	}
}

func TestLogs(t *testing.T) {
	r := newRig(t)
	r.json(t, "POST", "/sandboxes", `{"templateID":"base"}`, 201, nil)
	for i, typ := range []string{"created", "started", "error"} {
		r.events = append(r.events, sandbox.Event{Time: epoch.Add(time.Duration(i) * time.Second), Type: typ, Message: "it was " + typ})
	}
	path := "/v2/sandboxes/" + r.instances[0].ID + "/logs?"
	tests := []struct{ name, query, want string }{
		{"all", "", "created started error"},
		{"limit", "limit=1", "created"},
		{"backward", "direction=backward&limit=2", "error started"},
		{"cursor", fmt.Sprintf("cursor=%d", epoch.Add(time.Second).UnixMilli()), "started error"},
		{"cursor-backward", fmt.Sprintf("direction=backward&cursor=%d", epoch.Add(time.Second).UnixMilli()), "started created"},
		{"level", "level=warn", "error"},
		{"search", "search=start", "started"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got struct {
				Logs []struct{ Fields map[string]string }
			}
			r.json(t, "GET", path+tt.query, "", 200, &got)
			var types []string
			for _, l := range got.Logs {
				types = append(types, l.Fields["type"])
			}
			if g := strings.Join(types, " "); g != tt.want {
				t.Errorf("logs = %q, want %q", g, tt.want)
			}
		})
	}
	for _, bad := range []string{"limit=1001", "direction=up", "level=fatal", "cursor=-1", "search=" + strings.Repeat("x", 300)} {
		r.json(t, "GET", path+bad, "", 400, nil)
	}
	var v1 struct {
		Logs       []struct{ Line string }
		LogEntries []struct{ Level string }
	}
	r.json(t, "GET", "/sandboxes/"+r.instances[0].ID+"/logs", "", 200, &v1)
	if len(v1.Logs) != 3 || len(v1.LogEntries) != 3 || !json.Valid([]byte(v1.Logs[0].Line)) || !strings.Contains(v1.Logs[0].Line, `"level":"info"`) || !strings.Contains(v1.Logs[0].Line, `"it was created"`) {
		t.Errorf("logs of the first form = %+v", v1)
	}
}
