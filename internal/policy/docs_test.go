package policy_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// TestDocument compiles every example of the document, and looks for every
// field, preset and code in it.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(examples) < 5 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, e := range examples {
		p, err := policy.Parse([]byte(e[1]))
		if err != nil {
			t.Errorf("%v in\n%s", err, e[1])
			continue
		}
		compile(t, p, "GITHUB_TOKEN", "PAY_KEY")
	}
	for _, v := range []any{
		policy.Policy{}, policy.Rule{}, policy.Match{}, policy.Value{}, policy.Field{}, policy.Secret{}, policy.Limits{}, policy.DNS{},
	} {
		ty := reflect.TypeOf(v)
		for i := range ty.NumField() {
			name, _, _ := strings.Cut(ty.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("%s.%s is not described", ty.Name(), name)
			}
		}
	}
	for _, p := range policy.Presets() {
		if !strings.Contains(string(text), "| `"+p.Name+"` |") {
			t.Errorf("preset %s is not described", p.Name)
		}
	}
	for _, c := range []policy.Code{
		policy.CodeNotAllowed, policy.CodeDenied, policy.CodeRequest, policy.CodeClosedAddress, policy.CodeNotResolved,
		policy.CodeProtocol, policy.CodeBadDestination,
	} {
		if !strings.Contains(string(text), "| `"+string(c)+"` |") {
			t.Errorf("code %s is not described", c)
		}
	}
}

// TestDocumentArguments holds the table of --allow against ParseAllow.
func TestDocumentArguments(t *testing.T) {
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## `--allow`")
	section, _, _ = strings.Cut(section, "\n## ")
	n := 0
	for line := range strings.Lines(section) {
		cell, ok := strings.CutPrefix(line, "| `")
		if !ok {
			continue
		}
		cell, _, _ = strings.Cut("`"+cell, " | ")
		for _, arg := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			n++
			if _, err := policy.Allow(policy.Policy{}, arg[1]); err != nil {
				t.Error(err)
			}
		}
	}
	if n < 8 {
		t.Errorf("found %d arguments", n)
	}
}
