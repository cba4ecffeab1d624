package guest_test

import (
	"os/exec"
	"strings"
	"testing"
)

// What the agent may be made of, and why. Each is code that runs as root
// beside hostile commands, in every sandbox.
var allowed = map[string]string{
	"connectrpc.com/connect":     "envd's protocol",
	"google.golang.org/protobuf": "envd's messages",
	"sigs.k8s.io/json":           "JSON by exact names",
	"golang.org/x/sys":           "system calls that package syscall lacks",
}

func TestImports(t *testing.T) {
	const own = "github.com/carboy-sandbox/carboy"
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", own+"/cmd/carboy-guest")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		if strings.HasPrefix(pkg, own+"/") {
			continue
		}
		found := false
		for module := range allowed {
			found = found || pkg == module || strings.HasPrefix(pkg, module+"/")
		}
		if !found {
			t.Errorf("%s is not among what the agent may be made of", pkg)
		}
	}
}
