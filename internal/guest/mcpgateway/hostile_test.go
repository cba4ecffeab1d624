package mcpgateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/carboy-sandbox/carboy/internal/guest/mcpgateway"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// answers are a hostile server's, by method; what is not among them is answered
// as a server without anything would.
var answers = map[string]map[string]string{
	"no-capabilities": {"initialize": `{"protocolVersion":"2025-11-25","capabilities":null,"serverInfo":null}`},
	"null-lists": {
		"tools/list": `{"tools":[null,{"name":"t","inputSchema":{"type":"object"}}]}`, "prompts/list": `{"prompts":[null]}`,
		"resources/list": `{"resources":[null]}`, "resources/templates/list": `{"resourceTemplates":[null]}`,
	},
	"null-contents": {
		"resources/list": `{"resources":[{"uri":"x://file","name":"f"}]}`, "resources/read": `{"contents":[null]}`,
	},
	"odd-tools": {
		"tools/list": `{"tools":[{"name":"","inputSchema":{}},{"name":"t\u0000","inputSchema":7},{"name":"null","inputSchema":{"type":"object"}}]}`,
		"tools/call": `null`,
	},
	"odd-lists":     {"tools/list": `null`, "prompts/list": `[]`, "resources/list": `{"resources":{}}`},
	"endless-pages": {"tools/list": `{"tools":[],"nextCursor":"x"}`},
	"silent":        {"tools/list": ""},
}

// unasked is what a hostile server says by itself, once, when it was greeted.
var unasked = map[string]string{
	"odd-notices": `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{"a":1},"progress":1}}
{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[1],"progress":1}}
{"jsonrpc":"2.0","method":"notifications/progress"}
{"jsonrpc":"2.0","method":"notifications/message"}
{"jsonrpc":"2.0","method":"notifications/message","params":null}
{"jsonrpc":"2.0","method":"notifications/resources/updated"}
{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":7}
{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}
{"jsonrpc":"2.0","id":77777,"result":{}}
{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}
{"jsonrpc":"2.0","id":2,"method":"roots/list"}
`,
	"flood":      strings.Repeat(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n", 100_000),
	"bad-text":   "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"\xff\xfe\"}}\n",
	"no-json":    "\x00\xff not JSON\n",
	"array":      "[]\n[[[[[[[[1]]]]]]]]\n",
	"deep":       strings.Repeat("[", 1<<20) + "\n",
	"long-line":  strings.Repeat("x", 40<<20) + "\n",
	"huge-piece": `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("y", 40<<20) + `"}}` + "\n",
}

// hostile is an MCP server that keeps to nothing.
func hostile(kind string, in io.Reader, out io.Writer) {
	sc := bufio.NewScanner(in)
	for sc.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(sc.Bytes(), &m) != nil {
			continue
		}
		if m.Method == "notifications/initialized" {
			_, _ = io.WriteString(out, unasked[kind])
		}
		if m.ID == nil {
			continue
		}
		result, ok := answers[kind][m.Method]
		if !ok {
			result = map[string]string{
				"initialize":               `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"h","version":"1"}}`,
				"tools/list":               `{"tools":[]}`,
				"prompts/list":             `{"prompts":[]}`,
				"resources/list":           `{"resources":[]}`,
				"resources/templates/list": `{"resourceTemplates":[]}`,
			}[m.Method]
		}
		if result != "" {
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		}
	}
}

// Whatever one server says, the others are there.
func TestHostileServers(t *testing.T) {
	kinds := []string{}
	for k := range answers {
		kinds = append(kinds, k)
	}
	for k := range unasked {
		kinds = append(kinds, k)
	}
	mcpgateway.SetListLimit(t, patience.For(time.Second))
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "good", "hostile-"+kind)
			for range 3 {
				if got := r.call(t, "echo", text{"hello"}); got != "good: hello" {
					t.Fatalf("echo: %s", got)
				}
				_, _ = r.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "null"})
				_, _ = r.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "shostile-" + kind + "+x://file"})
			}
			res, err := r.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "x://file"})
			if err != nil || res.Contents[0].Text != "good" {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}
