package cli_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/cli"
)

var update = flag.Bool("update", false, "write the golden files anew")

// helped are all commands, hidden ones too.
var helped = []string{
	"", "claude", "codex", "gemini", "opencode", "aider", "up", "init", "agent", "agent ls", "agent show", "agent run",
	"run", "create", "exec", "cp", "forward", "open", "offer",
	"shell", "shell open", "shell ls", "shell read", "shell write", "shell signal", "shell attach", "shell close",
	"service", "service start", "service ls", "service status", "service logs", "service stop", "ls", "inspect", "logs", "attach", "ps", "wait", "kill", "stats", "set", "stop", "pause", "start", "rm", "diff", "apply", "fetch",
	"template", "template build", "template ls", "template logs", "template tag", "template publish", "template unpublish",
	"template rm", "template gc",
	"net", "net log", "policy", "policy show", "policy set", "policy test", "policy presets", "policy import", "policy learn",
	"secret", "secret add", "secret ls", "secret rm", "secret rotate",
	"key", "key add", "key ls", "key rm",
	"approve", "approve ls", "approve show", "approve allow", "approve deny",
	"git", "git hostkey", "project", "project show", "project allow", "project deny",
	"manifest", "manifest ls", "manifest show", "manifest check", "manifest schema",
	"volume", "volume create", "volume import", "volume diff", "volume apply", "volume export", "volume ls", "volume rm", "workspace", "workspace lock", "workspace unlock",
	"pod", "pod spawn", "pod send", "pod read", "pod attach", "pod stop", "pod ls", "pod tree", "pod inspect", "disk", "disk ls", "disk read", "disk export", "disk scrub", "df", "prune",
	"session", "session exec", "session ls", "session rm", "session status", "session errors", "langbot", "langbot serve",
	"session skill", "session skill install", "session skill ls", "session skill rm",
	"image", "image pull", "image import", "image ls", "image rm", "image gc",
	"snapshot", "snapshot create", "snapshot ls", "snapshot rm",
	"sync", "serve", "daemon", "daemon status", "daemon stop", "daemon run", "doctor", "version", "completion", "uninstall",
}

// mainWithout runs a command line without a daemon.
func mainWithout(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = cli.Main(context.Background(), args, cli.Env{Stdout: &out, Stderr: &errs})
	return code, out.String(), errs.String()
}

func TestHelp(t *testing.T) {
	for _, name := range helped {
		t.Run(strings.ReplaceAll("carboy "+name, " ", "-"), func(t *testing.T) {
			args := append(strings.Fields(name), "--help")
			code, got, errs := mainWithout(args...)
			if code != 0 || errs != "" {
				t.Fatalf("exit code %d, stderr %q", code, errs)
			}
			for i, line := range strings.Split(got, "\n") {
				if strings.HasSuffix(line, " ") {
					t.Errorf("line %d ends with a space", i+1)
				}
			}
			file := filepath.Join("testdata", "help", strings.TrimSuffix("carboy-"+strings.ReplaceAll(name, " ", "-"), "-")+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("run go test with -update if this is meant:\n%s", diff)
			}
		})
	}
}

// TestHelpIsComplete holds that no command is without a golden file, and that
// help by either way is the same.
func TestHelpIsComplete(t *testing.T) {
	_, top, _ := mainWithout()
	for _, name := range helped {
		if name == "" || strings.Contains(name, " ") {
			continue
		}
		if !strings.Contains(top, "\n  "+name+" ") {
			t.Errorf("carboy's help does not name %s", name)
		}
		_, a, _ := mainWithout("help", name)
		_, b, _ := mainWithout(name, "-h")
		if a != b || a == "" {
			t.Errorf("help %s and %s -h differ", name, name)
		}
	}
	_, section, _ := strings.Cut(top, "\ncommands:\n")
	section, _, _ = strings.Cut(section, "\nexamples:")
	for line := range strings.SplitSeq(section, "\n") {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "help" && !slices.Contains(helped, f[0]) {
			t.Errorf("%s has no golden help", f[0])
		}
	}
}

// BenchmarkCommandTree is what every start of carboy pays before it does
// anything.
func BenchmarkCommandTree(b *testing.B) {
	for b.Loop() {
		if code, _, _ := mainWithout("ls", "--bogus"); code != 125 {
			b.Fatal(code)
		}
	}
}
