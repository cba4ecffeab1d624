package guest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// connect begins a connection to what target is inside.
func (b *instance) connect(target string) (net.Conn, *bufio.Reader, int) {
	b.t.Helper()
	dial := b.http.Transport.(*http.Transport).DialContext
	c, err := dial(b.t.Context(), "", "")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience.For(time.Minute)))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		b.t.Fatal(err)
	}
	resp.Body.Close()
	return c, r, resp.StatusCode
}

// act makes a request of the action protocol, and returns the reply's fields.
func (b *instance) act(request string) map[string]any {
	b.t.Helper()
	c, r, status := b.connect(api.ActionsTarget)
	if status != http.StatusOK {
		b.t.Fatalf("status %d", status)
	}
	if _, err := io.WriteString(c, request); err != nil {
		b.t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	var out map[string]any
	if jerr := json.Unmarshal(raw, &out); err != nil || jerr != nil {
		b.t.Fatalf("%s: %q, %v, %v", request, raw, err, jerr)
	}
	return out
}

// The host reaches the actions by their name; the port of the same number inside is a
// command's own, and leads nowhere else.
func TestActions(t *testing.T) {
	b := start(t, nil, "")
	if got := b.act(`{"command": "id -u; pwd; echo $FROM", "timeout_seconds": 30}`); got["stdout"] != "1000\n/tmp\nconfig\n" && got["stdout"] != "1000\n/workspace\nconfig\n" {
		t.Errorf("got %v", got)
	}
	if _, _, status := b.connect("127.0.0.1:5005"); status != http.StatusBadGateway {
		t.Errorf("with nothing on the port: status %d", status)
	}
	if out, _ := b.sh("user", "(echo '{\"command\":\"id\"}' | nc -w 2 127.0.0.1 5005 || exec 3<>/dev/tcp/127.0.0.1/5005) 2>&1; echo none"); !strings.HasSuffix(out, "none\n") || strings.Contains(out, "stdout") {
		t.Errorf("from inside: %q", out)
	}
	for _, target := range []string{"actions.carboy:5006", "actions.carboy:80", "actions:5005", "192.0.2.1:5005"} {
		if _, _, status := b.connect(target); status != http.StatusBadRequest {
			t.Errorf("%s: status %d", target, status)
		}
	}
	got := b.act(`{"action":"start_service","service_name":"mine","command":"python3 -c 'import socket; s=socket.create_server((\"127.0.0.1\",5005)); c=s.accept()[0]; c=s.accept()[0]; c.sendall(b\"mine\"); c.close()'","readiness":{"type":"tcp","address":"5005"}}`)
	if got["error"] != nil {
		t.Fatal(got)
	}
	_, r, status := b.connect("127.0.0.1:5005")
	if raw, err := io.ReadAll(r); status != http.StatusOK || err != nil || string(raw) != "mine" {
		t.Errorf("the user's server on the port: %d, %q, %v", status, raw, err)
	}
	if got := b.act(`{"command":"echo beside"}`); got["stdout"] != "beside\n" {
		t.Errorf("beside it: %v", got)
	}
}

// A suspended agent gives the connections of actions up, whatever they wait for. What
// was begun is there after, from its cursor on.
func TestActionsAndSuspension(t *testing.T) {
	b := start(t, nil, "")
	if got := b.act(`{"action":"open_shell","shell_id":"a","env":{"PS1":""}}`); got["state"] != "running" {
		t.Fatal(got)
	}
	b.act(`{"action":"write_shell","shell_id":"a","input":"stty -echo; echo on''ce; sleep 1; echo twi''ce","append_newline":true}`)
	var cursor float64
	for text := ""; !strings.Contains(text, "once"); {
		got := b.act(fmt.Sprintf(`{"action":"read_shell","shell_id":"a","cursor":%.0f,"wait_ms":1000}`, cursor))
		text += got["output"].(string)
		cursor = got["next_cursor"].(float64)
	}
	c, r, _ := b.connect(api.ActionsTarget)
	if _, err := io.WriteString(c, `{"command":"touch /tmp/slept; sleep 1000","timeout_seconds":1000}`); err != nil {
		t.Fatal(err)
	}
	b.http.CloseIdleConnections()
	switch status := b.post("/carboy/suspend", ""); status {
	case http.StatusNoContent:
	case http.StatusConflict: // an agent here sees the sockets of this machine
		t.Skip("a socket of this machine is bound to a path, so no agent here is suspended")
	default:
		t.Fatal("suspend: status ", status)
	}
	if raw, err := io.ReadAll(r); len(raw) != 0 {
		t.Errorf("a command that goes on was answered by %q, %v", raw, err)
	}
	b.wake()
	text := ""
	for !strings.Contains(text, "twice") {
		got := b.act(fmt.Sprintf(`{"action":"read_shell","shell_id":"a","cursor":%.0f,"wait_ms":1000}`, cursor))
		if got["error"] != nil || got["cursor"] != cursor {
			t.Fatal(got)
		}
		text += got["output"].(string)
		cursor = got["next_cursor"].(float64)
	}
	if strings.Contains(text, "once") {
		t.Errorf("after it: %q", text)
	}
}

// While commands are held, none is started.
func TestActionsWhileHeld(t *testing.T) {
	b := start(t, nil, "")
	ctx, release := context.WithCancel(t.Context())
	defer release()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/carboy/hold", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal("hold: ", resp.Status)
	}
	c, r, _ := b.connect(api.ActionsTarget)
	if _, err := io.WriteString(c, `{"command":"echo on"}`); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	if raw, err := r.ReadByte(); err == nil {
		t.Fatalf("while commands are held: %q", raw)
	}
	release()
	_ = c.SetReadDeadline(time.Now().Add(patience.For(time.Minute)))
	if raw, err := io.ReadAll(r); err != nil || !strings.Contains(string(raw), `"on\n"`) {
		t.Errorf("after it: %q, %v", raw, err)
	}
}
