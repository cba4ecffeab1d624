package project_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/project"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func text(s string) *project.Text {
	return project.NewText("/srv/app/.carboy.toml", sandbox.HostDir{Path: "/srv/app", Dev: 1, Ino: 2, Born: 3}, []byte(s))
}

func parse(t *testing.T, s string) *project.File {
	t.Helper()
	f, err := project.Parse(text(s))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const whole = `image = "debian:12"
isolation = "process,gvisor"
user = "root"
read_only_root = true
network = "on"
allow = ["npm", "example.com:8443"]
secrets = ["NPM_TOKEN"]
caches = ["npm", "go"]
volumes = ["data:/mnt/data:ro"]
ports = ["3000", "8080:80"]
ttl = "2h"

[limits]
cpus = 4
memory = "8g"
pids = 4096
disk = "20g"

[env]
NODE_ENV = "test"
`

func TestAsks(t *testing.T) {
	want := []string{
		"the image debian:12, in place of this machine's programs",
		"the isolation process,gvisor, where gvisor is the default",
		"commands run as root",
		"the network: all of the public internet",
		"the network: npm",
		"the network: example.com:8443",
		"the secret NPM_TOKEN, by its placeholder",
		"4 processors, where 2 is the default",
		"4096 processes, where 1024 is the default",
		"memory of 8 GiB, where 2 GiB is the default",
		"disk of 20 GiB, where 8 GiB is the default",
		"a cache for npm",
		"a cache for go",
		"the volume data:/mnt/data:ro",
		"the port 3000, open on this machine's loopback",
		"the port 8080:80, open on this machine's loopback",
		"the variable NODE_ENV=test",
	}
	if d := cmp.Diff(want, parse(t, whole).Asks()); d != "" {
		t.Errorf("asks (-want +got):\n%s", d)
	}
	neutral := parse(t, `image = "host"
isolation = "gvisor"
user = "user"
network = "off"
read_only_root = true
ttl = "30m"
[limits]
cpus = 0.5
memory = "2g"
pids = 1024
disk = "1g"
`)
	if asks := neutral.Asks(); len(asks) > 0 {
		t.Errorf("what narrows asks for %q", asks)
	}
	hostile := parse(t, "[env]\nA = \"\\u001b[2J\\u202e"+strings.Repeat("x", 500)+"\"")
	for _, a := range hostile.Asks() {
		if strings.ContainsAny(a, "\x1b\u202e") || len(a) > 300 {
			t.Errorf("shown as it is: %q", a)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct{ name, text, want, hint string }{
		{"unknown", "imag = \"x\"", "/srv/app/.carboy.toml:1:1: unknown key imag", "did you mean image?"},
		{"unknown-in-table", "# c\n[limits]\n  memroy = \"1g\"", "/srv/app/.carboy.toml:3:3: unknown key limits.memroy", "did you mean limits.memory?"},
		{"unknown-table", "[workspce]\nmode = \"rw\"", ":1:2: unknown key workspce", "known are allow, "},
		{"workspace", "workspace = \".:rw\"", ":1:1: unknown key workspace", "known are "},
		{"mounts", "mounts = [\"/etc:/mnt\"]", ":1:1: unknown key mounts", "known are "},
		{"policy", "policy = \"x\"", "unknown key policy", "known are "},
		{"case", "Image = \"x\"", "unknown key Image", "did you mean image?"},
		{"syntax", "image = \n", "/srv/app/.carboy.toml:1:", ""},
		{"twice", "image = \"a\"\nimage = \"b\"", ":2:", ""},
		{"image-path", "image = \"../rootfs\"", ":1:9: ", ""},
		{"image-path-inside", "image = \"a/../../b\"", ":1:9: ", ""},
		{"image-absolute", "image = \"/etc\"", ":1:9: ", ""},
		{"image-and-template", "image = \"a\"\ntemplate = \"b\"", "both image and template", "leave one"},
		{"wall", "isolation = \"none\"", ":1:13: ", ""},
		{"user", "user = \"a b\"", ":1:8: ", ""},
		{"network", "network = \"host\"", ":1:11: ", ""},
		{"allow", "allow = [\n  \"npm\",\n  \"no such\",\n]", ":3:3: ", ""},
		{"secret-value", "secrets = [\"A=file:/etc/shadow\"]", ":1:12: ", ""},
		{"secret-env", "secrets = [\"A=env:B\"]", ":1:12: ", ""},
		{"cache", "caches = [\"goo\"]", ":1:11: ", ""},
		{"volume", "volumes = [\"data\"]", ":1:12: ", ""},
		{"volume-as-workspace", "volumes = [\"data:/workspace\"]", ":1:12: ", ""},
		{"volume-of-the-host", "volumes = [\"/etc:/mnt\"]", ":1:12: ", ""},
		{"port", "ports = [\"99999\"]", ":1:10: ", ""},
		{"port-of-all", "ports = [\"0.0.0.0:80:80\"]", ":1:10: ", ""},
		{"ttl", "ttl = \"never\"", ":1:7: ", ""},
		{"size", "[limits]\nmemory = \"lots\"", ":2:10: ", ""},
		{"negative", "[limits]\npids = -1", "limits: below zero", ""},
		{"nan", "[limits]\ncpus = nan", "limits: below zero", ""},
		{"env-name", "[env]\n\"A=B\" = \"c\"", "env: ", ""},
		{"env-nul", "[env]\nA = \"\\u0000\"", "env: ", ""},
		{"too-many", "caches = [" + strings.Repeat("\"go\",", 65) + "]", "65 are too many", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := project.Parse(text(tt.text))
			e, ok := err.(*sandbox.Error)
			if !ok || e.Kind != sandbox.Invalid || !strings.Contains(e.Msg, tt.want) || !strings.HasPrefix(e.Hint, tt.hint) {
				t.Fatalf("Parse = %+v, want %q and the hint %q", err, tt.want, tt.hint)
			}
			if strings.Contains(e.Msg, "shadow") {
				t.Errorf("it repeats what may be a secret: %s", e.Msg)
			}
		})
	}
}

// TestParseTypes gives each key each type of value, and holds that those of another
// type than its own are refused in words.
func TestParseTypes(t *testing.T) {
	values := map[string]string{
		"word": `"x"`, "number": "60", "fraction": "0.5", "truth": "true", "date": "2026-01-02", "words": `["x"]`,
		"numbers": "[1]", "lists": `[["x"]]`, "table": `{ a = "b" }`, "none": "{}",
	}
	tests := []struct{ key, own, want, hint string }{
		{"image", "word", "it is a word in quotes", `image = "debian:12"`},
		{"template", "word", "it is a word in quotes", `template = "node"`},
		{"isolation", "word", "it is a word in quotes", `isolation = "gvisor"`},
		{"user", "word", "it is a word in quotes", `user = "user"`},
		{"read_only_root", "truth", "it is true or false, without quotes", "read_only_root = true"},
		{"network", "word", "it is a word in quotes", `network = "off"`},
		{"allow", "words", "it is a list of words", `allow = ["npm"]`},
		{"secrets", "words", "it is a list of words", `secrets = ["NPM_TOKEN"]`},
		{"caches", "words", "it is a list of words", `caches = ["npm"]`},
		{"volumes", "words", "it is a list of words", `volumes = ["data:/data"]`},
		{"ports", "words", "it is a list of words", `ports = ["3000"]`},
		{"env", "table none", "it is a table", `env = { NODE_ENV = "test" }`},
		{"env.A", "word", "it is a word in quotes", `A = "test"`},
		{"ttl", "word", "it is a duration in quotes", `use "60s"`},
		{"limits", "none", "it is a table", `limits = { memory = "2g" }`},
		{"limits.cpus", "number fraction", "it is a number without quotes", "cpus = 2"},
		{"limits.memory", "word", "it is a size in quotes", `use one such as "512m"`},
		{"limits.pids", "number", "it is a whole number without quotes", "pids = 1024"},
		{"limits.disk", "word", "it is a size in quotes", `use one such as "8g"`},
	}
	for _, tt := range tests {
		for name, value := range values {
			t.Run(tt.key+"-"+name, func(t *testing.T) {
				_, err := project.Parse(text(tt.key + " = " + value))
				e, bad := err.(*sandbox.Error)
				if strings.Contains(" "+tt.own+" ", " "+name+" ") {
					if bad && (strings.Contains(e.Msg, "it is a") || strings.Contains(e.Msg, "Go ")) {
						t.Errorf("its own type is refused: %s", e.Msg)
					}
					return
				}
				if !bad || e.Kind != sandbox.Invalid {
					t.Fatalf("taken: %v", err)
				}
				if name == "table" && tt.key == "limits" {
					return // it is a table, with an unknown key
				}
				if name == "number" || !strings.HasPrefix(tt.hint, "use ") { // what is not a number is told the type
					if !strings.HasPrefix(e.Msg, "/srv/app/.carboy.toml:1:1: ") || e.Hint != tt.hint {
						t.Errorf("refused with %q, hint %q; want hint %q", e.Msg, e.Hint, tt.hint)
					}
				}
				if want := tt.want; name != "number" && tt.key != "limits" && tt.key != "env" && !strings.HasSuffix(e.Msg, ": "+tt.key+": "+want) {
					t.Errorf("refused with %q, want %q", e.Msg, want)
				}
			})
		}
	}
	for _, s := range []string{"[image]", "[[allow]]", "[[limits]]", "[[env]]", "[env.A]", "[limits.memory]", "[ttl]", "limits = { memory = 512 }", "env = { A = 1 }"} {
		if _, err := project.Parse(text(s)); err == nil || strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "struct") {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestInto(t *testing.T) {
	none := func(string) bool { return false }
	var s launch.Spec
	keys := parse(t, whole).Into(&s, none)
	want := launch.Spec{
		Image: "debian:12", ImageNamed: true, Isolation: "process,gvisor", User: "root", ReadOnly: true, Network: "on",
		Allow: []string{"npm", "example.com:8443"}, Secrets: []string{"NPM_TOKEN"}, Caches: []string{"npm", "go"},
		Volumes: []string{"data:/mnt/data:ro"}, Publish: []string{"3000", "8080:80"}, Env: launch.Env{Base: map[string]string{"NODE_ENV": "test"}},
		TTL: 2 * time.Hour, CPUs: 4, Memory: 8 << 30, PIDs: 4096, Disk: 20 << 30,
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("spec (-want +got):\n%s", d)
	}
	if d := cmp.Diff("allow caches env image isolation limits.cpus limits.disk limits.memory limits.pids network ports read_only_root secrets ttl user volumes", strings.Join(keys, " ")); d != "" {
		t.Errorf("keys (-want +got):\n%s", d)
	}

	typed := launch.Spec{
		Template: "t", Isolation: "gvisor", User: "user", Allow: []string{"npm"}, Secrets: []string{"NPM_TOKEN=env:OTHER"},
		Caches: []string{"pip"}, CPUs: 1, Memory: 1 << 30, PIDs: 10, Disk: 1 << 30, TTL: time.Minute,
	}
	flags := "template isolation user read-only allow secret cache cpus memory pids disk ttl "
	s = typed
	parse(t, whole).Into(&s, func(f string) bool { return strings.Contains(flags, f+" ") })
	want = typed
	want.Network, want.Allow = "on", []string{"npm", "example.com:8443"}
	want.Caches, want.Volumes = []string{"pip", "npm", "go"}, []string{"data:/mnt/data:ro"}
	want.Publish = []string{"3000", "8080:80"}
	want.Env.Base = map[string]string{"NODE_ENV": "test"}
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("with flags (-want +got):\n%s", d)
	}

	s = launch.Spec{Network: "off"}
	if keys := parse(t, "network = \"on\"\nallow = [\"npm\"]\nsecrets = [\"A\"]").Into(&s, func(f string) bool { return f == "network" }); len(keys) > 0 || len(s.Allow)+len(s.Secrets) > 0 {
		t.Errorf("--network off takes %q", keys)
	}
	s = launch.Spec{Allow: []string{"npm"}}
	parse(t, `network = "off"`).Into(&s, func(f string) bool { return f == "allow" })
	if s.Network != "" {
		t.Errorf("--allow over a file with network off is %q", s.Network)
	}
}

func TestDiffer(t *testing.T) {
	got := project.Differ([]string{"a", "b"}, []string{"b", "c"})
	if d := cmp.Diff([]project.Line{{" ", "b"}, {"+", "c"}, {"-", "a"}}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// FuzzParse holds that whatever stands in a file is refused or asks for what it
// widens, in text that can't hurt a terminal.
func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add("[limits]\ncpus = 1e3")
	f.Add("env.A = \"b\"\nenv.\"x y\" = 1")
	f.Add("[[allow]]\n")
	f.Fuzz(func(t *testing.T, s string) {
		file, err := project.Parse(text(s))
		if err != nil {
			if e, ok := err.(*sandbox.Error); !ok || e.Kind != sandbox.Invalid {
				t.Fatalf("%q: %v", s, err)
			} else if strings.Contains(e.Msg, "struct field") {
				t.Errorf("%q names a type of the program's: %s", s, e.Msg)
			}
			return
		}
		asks := file.Asks()
		for _, a := range asks {
			if strings.ContainsFunc(a, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("%q is shown as %q", s, a)
			}
		}
		var spec launch.Spec
		file.Into(&spec, func(string) bool { return false })
		widens := len(spec.Allow)+len(spec.Secrets)+len(spec.Caches)+len(spec.Volumes)+len(spec.Publish)+len(spec.Env.Base) > 0 ||
			spec.Network == "on" || spec.Template != "" || spec.Image != "" && spec.Image != "host" || spec.User != "" && spec.User != "user" ||
			spec.CPUs > sandbox.DefaultCPUs || spec.Memory > sandbox.DefaultMemory || spec.Disk > sandbox.DefaultDisk || spec.PIDs > sandbox.DefaultPIDs
		if widens && len(asks) == 0 {
			t.Errorf("%q is taken unasked: %+v", s, spec)
		}
		if spec.Workspace != "" || len(spec.Mounts) > 0 || spec.Policy != "" || len(spec.Env.Vars)+len(spec.Env.Files) > 0 {
			t.Errorf("%q says what it has no say in: %+v", s, spec)
		}
	})
}
