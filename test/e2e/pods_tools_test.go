package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

// toolClient calls a tool of a sandbox's pods by MCP, as a client inside does: its name, and its arguments in JSON. What was refused begins
// with "! ".
const toolClient = `
import json, sys, urllib.request
def post(method, params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    r = urllib.request.Request("http://gate.carboy.internal/pods/", data=body, headers={"Content-Type": "application/json", "Accept": "application/json, text/event-stream"})
    text = urllib.request.urlopen(r).read().decode()
    return json.loads([l for l in text.splitlines() if l.startswith("data:")][-1][5:])
if len(sys.argv) == 1:
    post("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}})
    print(*sorted(t["name"] for t in post("tools/list", {})["result"]["tools"]))
else:
    r = post("tools/call", {"name": sys.argv[1], "arguments": json.loads(sys.argv[2])})["result"]
    print("! " * bool(r.get("isError")) + r["content"][0]["text"])
`

// putTool puts the client into a sandbox.
func (h *home) putTool(sandbox string) {
	h.t.Helper()
	if r := h.run(strings.NewReader(toolClient), "exec", sandbox, "--", "sh", "-c", "cat >/tmp/tool.py"); r.code != 0 {
		h.t.Fatalf("put the client into %s: %+v", sandbox, r)
	}
}

// tool calls a tool of a sandbox's.
func (h *home) tool(sandbox, name string, args map[string]any) string {
	h.t.Helper()
	b, err := json.Marshal(args)
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.TrimSuffix(h.ok("exec", sandbox, "--", "python3", "/tmp/tool.py", name, string(b)), "\n")
}

// spawnArgs are those of SpawnPod, and more of them in pairs.
func spawnArgs(name, target string, command []string, more ...any) map[string]any {
	args := map[string]any{"name": name, "task": "go", "scope": []any{map[string]any{"target": target, "permission": "write"}}, "command": command}
	for i := 0; i < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	return args
}

// TestPodTools: programs in a sandbox that may spawn do so by MCP, within what the sandbox has, and speak to what stands below it; a pod of
// theirs may do the same where it was given that. The daemon's end changes nothing.
func TestPodTools(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		dir := h.edited(map[string]string{"src/a": "a\n", "src/x/b": "b\n", "docs/d": "d\n"})
		h.ok("volume", "import", dir, "tree")
		h.ok("create", "--name", "lead", "--isolation", wall, "--volume", "tree:/workspace", "--may-spawn", "2", "--allow", "pypi", "--pids", "512")
		h.putTool("lead")
		if got := h.ok("exec", "lead", "--", "python3", "/tmp/tool.py"); got != "InspectPod ListPods ReadPodOutput SendToPod SpawnPod StopPod\n" {
			t.Errorf("the tools are %q", got)
		}
		agent := []string{"sh", "-c", "cat >src/task; echo done"}
		if got := h.tool("lead", "SpawnPod", spawnArgs("child", "src", agent, "may_spawn", 1)); got != "spawned pod `child`; delegated scope: write:/workspace/src" {
			t.Errorf("spawn: %s", got)
		}
		if got := h.writesAt("lead") + " " + h.writesAt("child"); got != ".:docs: src:src/x:" {
			t.Errorf("parent and child write to %q", got)
		}
		if got := h.tool("lead", "ReadPodOutput", map[string]any{"name": "child", "wait_seconds": 60}); !strings.HasSuffix(got, ": 1 new line(s) of assistant text\ndone\n") {
			t.Errorf("it said %q", got)
		}
		for want, args := range map[string]map[string]any{
			"is not within spawner `lead`'s effective scope: it leads out":                     spawnArgs("two", "/etc", agent),
			"the nearest that would be within is read:/workspace/src/x":                        spawnArgs("two", "src/x", agent),
			"pids: 4096, where the parent has 512":                                             spawnArgs("two", "docs", agent, "pids", 4096),
			"network: rules[0]: no rule of the wider policy allows all that evil.example does": spawnArgs("two", "docs", agent, "allow", []string{"evil.example"}),
			`secrets: the parent has no secret "KEY"`:                                          spawnArgs("two", "docs", agent, "allow", []string{"pypi"}, "secrets", []string{"KEY"}),
			"spawned pod name `lead` collides with spawner's own name":                         spawnArgs("lead", "docs", agent),
			"unexpected additional properties":                                                 spawnArgs("two", "docs", agent, "image", "debian"),
		} {
			if got := h.tool("lead", "SpawnPod", args); !strings.HasPrefix(got, "! ") || !strings.Contains(got, want) {
				t.Errorf("%v: %q, want %q", args, got, want)
			}
		}
		h.killDaemon()
		h.putTool("child")
		if got := h.tool("child", "SpawnPod", spawnArgs("grandchild", "src/x", nil)); got != "spawned pod `grandchild`; delegated scope: write:/workspace/src/x" {
			t.Errorf("a child spawns: %s", got)
		}
		if got := h.tool("child", "SpawnPod", spawnArgs("more", "src", agent)); !strings.HasPrefix(got, "! ") {
			t.Errorf("a child spawns more than it may: %s", got)
		}
		if got := h.tool("lead", "SpawnPod", spawnArgs("third", "docs", agent)); !strings.Contains(got, "below it there may be 2 pods at once") {
			t.Errorf("a third one: %s", got)
		}
		if got := h.tool("child", "StopPod", map[string]any{"name": "child"}); got != "! no spawned pod named `child`" {
			t.Errorf("a pod stops itself: %s", got)
		}
		h.putTool("grandchild")
		if r := h.run(nil, "exec", "grandchild", "--", "python3", "/tmp/tool.py", "ListPods", "{}"); r.code == 0 {
			t.Errorf("who may spawn none lists %+v", r)
		}
		if got := h.tool("lead", "StopPod", map[string]any{"name": "child"}); got != "stopped pod `child`; reclaimed scope: write:/workspace/src" {
			t.Errorf("stop: %s", got)
		}
		if got := h.tool("lead", "ListPods", nil); !strings.HasPrefix(got, "1 pod(s) known\ngrandchild [alive] ") || !strings.Contains(got, "parent=lead") {
			t.Errorf("there are %q", got)
		}
		h.tool("lead", "StopPod", map[string]any{"name": "grandchild"})
		if got := h.writesAt("lead"); got != ".:docs:src:src/x:" {
			t.Errorf("the parent writes to %q", got)
		}
		if log := h.ok("logs", "lead"); !strings.Contains(log, "by its tools: spawned pod `child`") || !strings.Contains(log, "by its tools: stopped pod `child`") {
			t.Errorf("its log has\n%s", log)
		}
		h.ok("rm", "-f", "lead")
	})
}

// TestPodToolsFlood: a program that calls without end is refused calls, and others are answered.
func TestPodToolsFlood(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newHome(t)
		dir := h.edited(map[string]string{"docs/d": "d\n"})
		h.ok("volume", "import", dir, "tree")
		h.ok("create", "--name", "lead", "--isolation", wall, "--volume", "tree:/workspace", "--may-spawn", "2")
		h.putTool("lead")
		got := h.ok("exec", "lead", "--", "python3", "-c", `
import sys
sys.argv = ["x"]
exec(open("/tmp/tool.py").read())
refused = 0
for _ in range(300):
    r = post("tools/call", {"name": "ListPods", "arguments": {}})["result"]
    refused += bool(r.get("isError"))
print(refused > 0)
for size in (900_000, 10_000_000):
    try: print(post("tools/call", {"name": "SendToPod", "arguments": {"name": "x", "message": "m" * size}})["result"].get("isError"))
    except OSError: print("refused") # by a status, or in the middle
`)
		if want := "InspectPod ListPods ReadPodOutput SendToPod SpawnPod StopPod\nTrue\nTrue\nrefused\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		h.ok("ls")
		h.ok("rm", "-f", "lead")
	})
}
