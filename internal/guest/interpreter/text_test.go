package interpreter_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/interpreter"
)

// What is escaped means the same.
func FuzzASCII(f *testing.F) {
	f.Add("héllo 😀 \u2028 \x00 \" \\")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		out := interpreter.ASCII(b)
		for _, c := range out {
			if c >= 0x80 {
				t.Fatalf("%q is not ASCII", out)
			}
		}
		var want, got string
		if json.Unmarshal(b, &want) != nil || json.Unmarshal(out, &got) != nil || got != want {
			t.Errorf("%q became %q", want, got)
		}
	})
}

func TestSetting(t *testing.T) {
	hostile := map[string]string{"A": `'; rm -rf / "` + "\n\\"}
	for language, want := range map[string]string{
		"bash":       `export A=''\''; rm -rf / "` + "\n\\'\n",
		"r":          `Sys.setenv(A = "'; rm -rf / \"\n\\")` + "\n",
		"java":       `System.setProperty("A", "'; rm -rf / \"\n\\");` + "\n",
		"javascript": `Object.assign(process.env, {"A":"'; rm -rf / \"\n\\"})`,
	} {
		code, ok := interpreter.Setting(language, hostile, nil)
		if !ok || !strings.HasPrefix(code, want) {
			t.Errorf("%s: %q, want %q", language, code, want)
		}
	}
	if _, ok := interpreter.Setting("cobol", hostile, nil); ok {
		t.Error("it claims to know how in cobol")
	}
}
