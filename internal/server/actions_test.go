package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Each route is one request of the action protocol, and its reply the answer.
func TestActionRoutes(t *testing.T) {
	w := newWorld(t)
	asked := make(chan string, 8)
	w.Guest.Actions = func(line []byte) string {
		asked <- strings.TrimSuffix(string(line), "\n")
		return `{"shell_id":"s","service_name":"w","state":"running","output":"\u001b[0m","next_cursor":9,"shells":null,"from_a_later_version":1}`
	}
	sb := w.create(t, w.full)
	for _, tt := range []struct {
		name, method, path, body string
		code                     int
		want                     string // the request of the agent; "": there is none
		says                     string
	}{
		{"open", "POST", "/shells", `{"shell_id":"s","cwd":"/tmp","cols":80,"rows":24,"env":{"A":"b"}}`, 201, `{"action":"open_shell","shell_id":"s","cwd":"/tmp","cols":80,"rows":24,"env":{"A":"b"}}`, `"state":"running"`},
		{"list", "GET", "/shells", "", 200, `{"action":"list_shells"}`, `"shells":`},
		{"status", "GET", "/shells/s", "", 200, `{"action":"status_shell","shell_id":"s"}`, `"shell_id":"s"`},
		{"read", "GET", "/shells/s/output", "", 200, `{"action":"read_shell","shell_id":"s","cursor":0,"max_chars":65536}`, `"next_cursor":9`},
		{"read-all", "GET", "/shells/s/output?cursor=7&max_chars=3&plain=1&wait_for_idle_ms=300&wait_ms=5&encoding=base64", "", 200, `{"action":"read_shell","shell_id":"s","cursor":7,"max_chars":3,"plain":true,"wait_for_idle_ms":300,"wait_ms":5,"encoding":"base64"}`, `"output":`},
		{"write", "POST", "/shells/s/input", `{"input":"pwd","append_newline":true}`, 200, `{"action":"write_shell","shell_id":"s","input":"pwd","append_newline":true}`, ""},
		{"write-its-own", "POST", "/shells/s/input", `{"shell_id":"s","input":"x"}`, 200, `{"action":"write_shell","shell_id":"s","input":"x","append_newline":false}`, ""},
		{"signal", "POST", "/shells/s/signal", `{"signal":"INT"}`, 200, `{"action":"signal_shell","shell_id":"s","signal":"INT"}`, ""},
		{"size", "POST", "/shells/s/size", `{"cols":1,"rows":2}`, 200, `{"action":"resize_shell","shell_id":"s","cols":1,"rows":2}`, ""},
		{"close", "DELETE", "/shells/s", "", 200, `{"action":"close_shell","shell_id":"s"}`, `"closed":`},
		{"start", "POST", "/services", `{"service_name":"w","command":"serve","readiness":{"type":"tcp","address":"8080"},"ready_timeout_seconds":5,"restart":"always"}`, 201, `{"action":"start_service","service_name":"w","command":"serve","readiness":{"type":"tcp","address":"8080"},"ready_timeout_seconds":5,"restart":"always"}`, `"service_name":"w"`},
		{"services", "GET", "/services", "", 200, `{"action":"list_services"}`, `"services":`},
		{"service-status", "GET", "/services/w", "", 200, `{"action":"status_service","service_name":"w"}`, ""},
		{"logs", "GET", "/services/w/logs?tail=5", "", 200, `{"action":"logs_service","service_name":"w","tail_lines":5}`, `"stdout":`},
		{"stop", "DELETE", "/services/w", "", 200, `{"action":"stop_service","service_name":"w"}`, ""},

		{"an-action", "POST", "/shells", `{"action":"open_shell","shell_id":"s"}`, 400, "", "no field"},
		{"a-field-that-there-is-not", "POST", "/shells", `{"shell_id":"s","secret":"x"}`, 400, "", "no field"},
		{"another-shell", "POST", "/shells/s/input", `{"shell_id":"t","input":"x"}`, 400, "", `it is for`},
		{"no-body", "POST", "/shells/s/input", "", 400, "", "body"},
		{"a-parameter-too-large", "GET", "/shells/s/output?max_chars=1048577", "", 400, "", "max_chars"},
		{"below-zero", "GET", "/shells/s/output?cursor=-1", "", 400, "", "cursor"},
		{"twice", "GET", "/shells/s/output?cursor=1&cursor=2", "", 400, "", "cursor"},
		{"no-truth", "GET", "/shells/s/output?plain=yes", "", 400, "", "plain"},
		{"no-encoding", "GET", "/shells/s/output?encoding=utf-7", "", 400, "", "encoding"},
		{"for-ever", "POST", "/services", `{"service_name":"w","command":"x","ready_timeout_seconds":601}`, 400, "", "from 1 to 600"},
		{"too-long-for-a-guest", "POST", "/shells/s/input", `{"input":"` + strings.Repeat("x", 1<<20-12) + `"}`, 400, "", "longer than a guest reads"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := w.do(t, request{tcp: true, method: tt.method, path: "/v1/sandboxes/" + sb.ID + tt.path, body: tt.body, header: map[string]string{"X-API-KEY": w.full}})
			if resp.StatusCode != tt.code || !strings.Contains(body, tt.says) || strings.Contains(body, "later_version") {
				t.Errorf("%s %s = %d %.200s, want %d and %s", tt.method, tt.path, resp.StatusCode, body, tt.code, tt.says)
			}
			got := ""
			select {
			case got = <-asked:
			default:
			}
			if got != tt.want {
				t.Errorf("the guest was asked\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// A guest's refusal has the status of its kind and its words, escaped; what a guest may
// not say, and nonsense, are none of them.
func TestActionRefusals(t *testing.T) {
	w := newWorld(t)
	reply := ""
	w.Guest.Actions = func([]byte) string { return reply }
	sb := w.create(t, w.full)
	for _, tt := range []struct {
		name, reply string
		code        int
		says        string
	}{
		{"not-found", `{"error":"shell s: not found","kind":"not_found"}`, 404, `"message":"shell s: not found"`},
		{"conflict", `{"error":"shell s: it is there","kind":"conflict"}`, 409, "it is there"},
		{"exhausted", `{"error":"too many","kind":"exhausted"}`, 429, "too many"},
		{"of-an-older-guest", `{"error":"no"}`, 400, `"message":"no"`},
		{"not-its-to-say", `{"error":"no","kind":"denied"}`, 400, `"message":"no"`},
		{"controls", `{"error":"\u001b[2J","kind":"invalid"}`, 400, `\\x1b`},
		{"long", `{"error":"` + strings.Repeat("x", 1<<16) + `"}`, 400, "xxx"},
		{"empty", "", 503, "broke off"},
		{"cut", `{"shell_id":"s"`, 503, "broke off"},
		{"a-list", `[]`, 503, "broke off"},
		{"null", `null`, 503, "broke off"},
		{"two", `{}{}`, 503, "broke off"},
		{"another-type", `{"cols":"x"}`, 503, "broke off"},
		{"an-error-that-is-no-text", `{"error":7}`, 503, "broke off"},
		{"without-end", `{"cwd":"` + strings.Repeat("x", 17<<20), 503, "broke off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reply = tt.reply
			resp, body := w.do(t, request{tcp: true, method: "GET", path: "/v1/sandboxes/" + sb.ID + "/shells/s", header: map[string]string{"X-API-KEY": w.full}})
			if resp.StatusCode != tt.code || !strings.Contains(body, tt.says) || len(body) > 1000 {
				t.Errorf("%.80s is answered by %d %.300s, want %d and %s", tt.reply, resp.StatusCode, body, tt.code, tt.says)
			}
		})
	}
	w.Guest.Actions = nil
	resp, body := w.do(t, request{tcp: true, method: "GET", path: "/v1/sandboxes/" + sb.ID + "/shells", header: map[string]string{"X-API-KEY": w.full}})
	if resp.StatusCode != http.StatusNotImplemented || !strings.Contains(body, "older version") {
		t.Errorf("an older guest: %d %s", resp.StatusCode, body)
	}
}

// A sandbox that ended by itself is started again for what begins something, and for
// nothing else: what there was is gone.
func TestActionsStart(t *testing.T) {
	w := newWorld(t)
	w.Guest.Actions = func([]byte) string { return `{}` }
	sb := w.create(t, w.full)
	for _, tt := range []struct {
		method, path, body string
		code               int
	}{
		{"GET", "/shells", "", 409},
		{"POST", "/shells/s/input", `{"input":"x"}`, 409},
		{"POST", "/shells", `{"shell_id":"s"}`, 201},
		{"DELETE", "/services/w", "", 409},
		{"POST", "/services", `{"service_name":"w","command":"x"}`, 201},
	} {
		w.Wall.Die(sb.ID, sandbox.EndCrashed)
		for { // until it is known
			got, err := w.Manager.Get(t.Context(), sandbox.Caller{Admin: true}, sb.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got.State == sandbox.StateStopped {
				break
			}
		}
		resp, body := w.do(t, request{tcp: true, method: tt.method, path: "/v1/sandboxes/" + sb.ID + tt.path, body: tt.body, header: map[string]string{"X-API-KEY": w.full}})
		if resp.StatusCode != tt.code {
			t.Errorf("%s %s = %d %s, want %d", tt.method, tt.path, resp.StatusCode, body, tt.code)
		}
	}
}

// Where a sandbox's socket is, users of the machine are told, and no holder of a key.
func TestWhoIsToldOfSockets(t *testing.T) {
	w := newWorld(t)
	w.Kill()
	w.Options.Sockets = func(id string) string { return "/run/carboy/vsock/" + id + ".sock" }
	w.Start()
	sb := w.create(t, w.full)
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/" + sb.ID} {
		if _, body := w.do(t, request{tcp: true, method: "GET", path: path, header: map[string]string{"X-API-KEY": w.full}}); strings.Contains(body, "vsock") {
			t.Errorf("over TCP %s tells %s", path, body)
		}
		if _, body := w.do(t, request{method: "GET", path: path}); !strings.Contains(body, `"socket":"/run/carboy/vsock/`+sb.ID+`.sock"`) {
			t.Errorf("over the unix socket %s tells %s", path, body)
		}
	}
}
