package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mistake is what people type, and what they are told: the error's line and the
// hint's, from their beginnings. Carboy's own exit code is 125 where none is given.
type mistake struct {
	line string // a shell's, with carboy in PATH
	says string // of the first line that is an error, after "carboy: "
	hint string // after "hint: "; "" for none
	code int    // 0: 125
}

const (
	usageHint = "usage: carboy "
	aSize     = "is not a size: use a number and one of k, m, g, t, such as 512m or 1.5g"
	aTime     = "is not a duration: use one such as 90s, 30m or 2h"
)

// mistakes are made in a directory with tree/, no.tar and no.env, where a sandbox web
// runs, one named off is stopped and one named nap is paused.
var mistakes = []mistake{
	{"carboy rnu -- true", "unknown command rnu", "did you mean carboy run?", 0},
	{"carboy rn -- true", "unknown command rn", "did you mean carboy run?", 0},
	{"carboy stp web", "unknown command stp", "did you mean carboy stop?", 0},
	{"carboy nonsense", "unknown command nonsense", "carboy --help", 0},
	{"carboy help nope", "unknown command nope", "carboy --help", 0},
	{"carboy list", "unknown command list", "did you mean carboy ls?", 0},
	{"carboy run -v /tmp:/x -- true", "run: unknown flag -v", "that is --mount here", 0},
	{"carboy help zzzz", "unknown command zzzz", "carboy --help", 0},
	{"carboy snapshot crate web", "snapshot: unknown command crate", "did you mean carboy snapshot create?", 0},
	{"carboy snapshot", "snapshot: COMMAND is missing", "carboy snapshot ls", 0},
	{"carboy run --memroy 1g -- true", "run: unknown flag --memroy", "did you mean --memory?", 0},
	{"carboy run --quiet -- true", "run: unknown flag --quiet", "carboy run --help", 0},
	{"carboy run", "run: COMMAND is missing", usageHint, 0},
	{"carboy cluade", "unknown command cluade", "did you mean carboy claude?", 0},
	{"env -u ANTHROPIC_API_KEY -u ANTHROPIC_AUTH_TOKEN -u CLAUDE_CODE_OAUTH_TOKEN HOME=/nonexistent carboy claude", "no key for claude: set ANTHROPIC_API_KEY, ", "", 0},
	{"carboy claude --resume web", "--resume: web is no sandbox of an agent's", "carboy exec -it web -- sh", 0},
	{"carboy claude --resume web --memory 1g", "--resume can't go with --memory", "carboy set web changes it", 0},
	{"carboy gemini --remote-control", "--remote-control: gemini has none", "", 0},
	{"carboy codex --package-version '1;x'", `--package-version: "1;x" is not a version`, "", 0},
	{"carboy agent run", "agent run: NAME is missing", "carboy agent ls", 0},
	{"carboy agent run custom", "custom: it is what you type that it runs, and there is nothing", "carboy agent run custom -- PROGRAM", 0},
	{"carboy agent show nobody", `agent "nobody": there is none of that name`, "carboy agent ls, or add nobody.toml to ", 0},
	{"carboy manifest", "manifest: COMMAND is missing", "carboy manifest ls", 0},
	{"carboy manifest show", "manifest show: AGENT is missing", usageHint, 0},
	{"carboy manifest show nobody", `agent "nobody": there is none of that name`, "carboy init writes one for each coding agent that is installed here, or write ", 0},
	{"carboy up", "up: AGENT is missing", "carboy manifest ls", 0},
	{"carboy up nobody", `agent "nobody": there is none of that name`, "carboy init writes one for each coding agent that is installed here, or write ", 0},
	{"carboy up nobody --nope", "up: unknown flag: --nope", "the agent's own flags stand after --", 0},
	{"carboy up --resume web", "--resume: web is no sandbox of an agent's", "carboy exec -it web -- sh", 0},
	{"carboy up --resume web other", "up: --resume names the sandbox, and no AGENT can stand beside it", "the agent's own words stand after --", 0},
	{"carboy manifest check tree", "tree: it is neither Markdown nor JSON by its name", "NAME.md or NAME.json", 0},
	{"carboy exec web", "exec: COMMAND is missing", "carboy exec web bash", 0},
	{"carboy exec web -it sh", "exec: the flag -it stands after NAME", "put flags before web", 0},
	{"carboy inspect", "inspect: NAME is missing", usageHint, 0},
	{"carboy attach", "attach: NAME is missing", usageHint, 0},
	{"carboy attach web", "sandbox web: no command runs in it", "carboy exec -d -t web -- COMMAND", 0},
	{"carboy attach web nope", "sandbox web: it has no command nope", "none runs", 0},
	{"carboy attach off", "sandbox off is stopped: no command runs in it", "carboy start off", 0},
	{"carboy create --home notes=/home/user/.notes", "--home: it is kept for the directory that is the workspace", "--workspace DIR", 0},
	{"carboy create --workspace tree --home notes", `--home: "notes" is not a program and what it keeps`, "", 0},
	{"carboy create --workspace tree --home a/b=/home/user/x", `home "a/b": not a name`, "1 to 32 of a-z", 0},
	{"carboy create web2", "create: unexpected argument web2", "for a sandbox of that name: carboy create --name web2", 0},
	{"carboy create --name web", "sandbox web: the name is taken", "choose another name, or carboy rm web", 0},
	{"carboy create --name 'My Box'", `--name: "My Box" is not a name`, "use 1 to 63 of a-z, 0-9 and -, a letter first", 0},
	{"carboy create --name ''", `create: --name: "" is not a name: use 1 to 63`, "", 0},
	{"carboy create --allow gihub", `--allow "gihub": "gihub" is no preset`, "did you mean --allow github? one of anthropic", 0},
	{"carboy create --allow '*'", `--allow "*": "*" names every host`, "--network on", 0},
	{"carboy create --allow https://", `--allow "https://": no host is named`, "a host, an address or a preset", 0},
	{"carboy create --allow service:Docs", `--allow "service:Docs": "Docs" is no name of a service`, "a to z, 0 to 9 and single -", 0},
	{"carboy create --allow service:healthz", `--allow "service:healthz": "healthz" is the gate's own`, "a to z, 0 to 9 and single -", 0},
	{"carboy offer web docs", "offer: TARGET is missing", usageHint, 0},
	{"carboy offer web docs http://127.0.0.1:8000", `sandbox web: its policy has no service "docs"`, "carboy set web --allow service:docs", 0},
	{"carboy offer web ../docs http://127.0.0.1:8000", "offer: ../docs is no name of a service", "a to z, 0 to 9 and single -", 0},
	{"carboy offer web docs 127.0.0.1:8000", `offer: "127.0.0.1:8000" is `, "http://127.0.0.1:8000 or unix:", 0},
	{"carboy offer web docs 8000", `offer: "8000" is neither an http or https URL nor unix:PATH`, "http://127.0.0.1:8000 or unix:", 0},
	{"carboy offer nobody docs http://127.0.0.1:8000", "sandbox nobody: not found", "carboy ls", 0},
	{"carboy create --isolation process --name gone --allow service:d >/dev/null; carboy offer gone d http://127.0.0.1:1 >o.txt & p=$!; until grep -qs http o.txt; do sleep 0.1; done; carboy rm -f gone >/dev/null; wait $p", "sandbox gone: it was removed, and d is no longer offered", "", 0},
	{"carboy create --network maybe", `create: --network: "maybe" is not known here: use off or on`, "", 0},
	{"carboy create --policy no.env", "--policy no.env: ", "a mapping of version, default, presets, rules, services, dns", 0},
	{"carboy create --workspace nowhere", "--workspace: there is no directory nowhere", "", 0},
	{"carboy create --workspace tree:rx", "--workspace: tree:rx: there is no mode rx: use DIR, whose changes are kept apart, DIR:ro or DIR:rw", "", 0},
	{"carboy create --mount tree:/x:rx", `--mount: "tree:/x:rx" is not a mount: GUEST can't hold a colon, and "rx" is no mode; use HOST:GUEST or HOST:GUEST:ro`, "", 0},
	{"carboy create --isolation process --user bob", `user "bob": the image has no such account`, "user, root, or one of the image's accounts", 0},
	{"carboy create --disk 1m", "disk 1m: out of bounds", "from 4m to 8t", 0},
	{"carboy run --timeout 0 -- true", `run: --timeout: "0" is too short: the least is 1ms; leave it out for the default`, "", 0},
	{"carboy exec --timeout 0s web -- true", `exec: --timeout: "0s" is too short: the least is 1ms; leave it out for the default`, "", 0},
	{"carboy shell read --wait-for-idle 1h web main", "shell read: --wait-for-idle 1h0m0s: more than 10m0s", "", 0},
	{"carboy shell read --max-chars 9999999 web main", "shell read: --max-chars 9999999: more than 1048576", "read on from the cursor", 0},
	{"carboy disk ls ./nope", "no image lies at ./nope", "a sandbox is named without a slash: carboy ls", 0},
	{"carboy disk ls web:/home", "no image lies at web:/home", "a sandbox and its path are two words: web /home", 0},
	{"carboy disk read ./tree /x", "./tree is no image: it is no regular file", "an image is the file of a raw ext4", 0},
	{"carboy disk read --max-bytes -1 off /x", "disk read: --max-bytes -1: at least 1", "", 0},
	{"carboy create --workspace no.env", "--workspace: no.env is not a directory", "", 0},
	{"cd tree/gone && rmdir ../gone && carboy run --workspace . -- true", "--workspace: . is meant from the current directory, which was deleted", "cd to one that is there", 0},
	{"carboy create --memory 12q", `create: --memory: "12q" ` + aSize, "", 0},
	{"carboy create --memory 1k", "memory 1k: too little", "at least 16m", 0},
	{"carboy create --disk lots", `create: --disk: "lots" ` + aSize, "", 0},
	{"carboy create --cpus none", `create: --cpus: "none" is not a number of processors: use one such as 2 or 0.5`, "", 0},
	{"carboy create --pids 0", `create: --pids: "0" is not a whole number above zero`, "", 0},
	{"carboy run --timeout 5x -- true", `run: --timeout: "5x" ` + aTime, "", 0},
	{"carboy create --isolation bogus", `isolation "bogus": there is no such wall`, "gvisor or process", 0},
	{"carboy create --snapshot nope", "snapshot nope: not found", "carboy snapshot ls", 0},
	{"carboy create --template nope", `template "nope": not found`, "carboy template ls, or use base", 0},
	{"carboy create --volume nope:/data", `volume "nope": not found`, "carboy volume ls, or make it: carboy volume create NAME", 0},
	{"carboy create --secret GITHUB_TOKEN", "secret GITHUB_TOKEN: no rule has a place for it", "--allow github", 0},
	{"carboy create --mount nowhere:/x", "--mount: there is no directory nowhere", "", 0},
	{"carboy create --mount no.env:/x", "--mount: no.env is not a directory", "", 0},
	{"carboy create --mount tree:x", `--mount: "tree:x" is not a mount: GUEST must be an absolute path`, "", 0},
	{"carboy create --mount tree:/etc/passwd", "mount /etc/passwd: /etc is the sandbox's own", "choose a place such as /mnt/cache", 0},
	{"carboy create --isolation process --workspace tree --mount tree:/workspace/file", "mount /workspace/file: /workspace/file is a file inside, and a mount needs a directory", "choose a place that is free or a directory", 0},
	{"carboy create --isolation process --workspace tree --mount tree:/workspace/link/x", "mount /workspace/link: /workspace/link is a symbolic link inside, and a mount needs a directory", "choose a place that is free or a directory", 0},
	{"carboy create --isolation process --workspace tree:ro --mount tree:/workspace/file/x", "mount /workspace/file: /workspace/file is a file inside", "choose a place that is free or a directory", 0},
	{"carboy create --env NOT_SET_HERE", "--env: NOT_SET_HERE is not set here", "", 0},
	{"carboy create --env =x", "--env: a variable's name is empty", "", 0},
	{"carboy create --env-file no.env", "--env-file no.env: line 1: not KEY=VALUE", "", 0},
	{"carboy create --env-file nowhere", "--env-file nowhere: no such file or directory", "", 0},
	{"carboy create --image ./no.tar", "", "", 0},
	{"carboy image import no.tar", "import image: archive: not a tar, or cut short", "", 0},
	{"carboy image rm nope", "image nope: not found", "carboy image ls", 0},
	{"carboy image pull registry.invalid/x:1", "pull registry.invalid/x:1: registry registry.invalid: ", "check ", 0},
	{"carboy exec nope -- true", "sandbox nope: not found", "carboy ls", 0},
	{"carboy exec off -- true", "sandbox off: it is stopped", "carboy start off", 0},
	{"carboy exec nap -- true", "sandbox nap: it is paused", "carboy start nap", 0},
	{"carboy exec --user bob web -- id", `no such user "bob": use user, or an account`, "", 0},
	{"carboy exec --user root web -- id", "not allowed: user root: this sandbox runs no command as root", "", 0},
	{"carboy run --isolation process --user root -- id", "user root: the process wall runs no command as root", "leave out --user root, or use --isolation gvisor", 0},
	{"carboy exec web -- nosuchcmd", "nosuchcmd: command not found", "", 127},
	{"carboy exec web -- cd /tmp", "cd: command not found", "cd is a shell's own: sh -c 'cd /tmp'", 127},
	{"carboy exec web 'ls -l'", "ls -l: command not found", "a command line is a shell's: sh -c 'ls -l'", 127},
	{"carboy exec web -- /tmp", "/tmp: permission denied", "it may be a directory, or a file without chmod +x", 126},
	{"carboy exec web -- /etc/passwd", "/etc/passwd: permission denied", "it may be a directory, or a file without chmod +x", 126},
	{"carboy exec --cwd /nope web -- true", "working directory /nope: no such file or directory", "", 126},
	{"carboy exec -it web -- sh", "-t needs a terminal, and stdin is none", "leave out -t", 0},
	{`carboy exec "" true`, `sandbox "": not a name`, "carboy ls", 0},
	{"carboy exec . true", `sandbox ".": not a name`, "carboy ls", 0},
	{"carboy exec a/b true", `sandbox "a/b": not a name`, "carboy ls", 0},
	{`carboy stop ""`, `sandbox "": not a name`, "carboy ls", 0},
	{`carboy rm ""`, `sandbox "": not a name`, "carboy ls", 0},
	{`carboy inspect ""`, `sandbox "": not a name`, "carboy ls", 0},
	{"carboy logs .", `sandbox ".": not a name`, "carboy ls", 0},
	{"carboy net log ..", `sandbox "..": not a name`, "carboy ls", 0},
	{"carboy diff .", `sandbox ".": not a name`, "carboy diff NAME [PATH...]; carboy ls", 0},
	{"carboy apply ./tree", `sandbox "./tree": not a name`, "carboy apply NAME [PATH...]; carboy ls", 0},
	{"carboy fetch", "fetch: NAME is missing", usageHint, 0},
	{"carboy fetch --prune web fix", "fetch: --prune is about all branches, and fix is named", "carboy fetch --prune web", 0},
	{"carboy fetch --max-size lots web", `fetch: --max-size: "lots" ` + aSize, "", 0},
	{"carboy sync .", `sandbox ".": not a name`, "carboy sync NAME [PATH...]; carboy ls", 0},
	{"carboy volume rm .", `volume ".": not a name`, "carboy volume ls", 0},
	{"carboy snapshot rm .", `snapshot ".": not an ID`, "carboy snapshot ls", 0},
	{`carboy template rm ""`, `template "": not a name`, "carboy template ls", 0},
	{"carboy rm nope", "sandbox nope: not found", "carboy ls", 0},
	{"carboy rm web", "sandbox web: it is running", "carboy stop web, or carboy rm -f web", 0},
	{"carboy start nope", "sandbox nope: not found", "carboy ls", 0},
	{"carboy cp nowhere web:/tmp/x", "cp: nowhere: no such file or directory", "", 0},
	{"carboy cp no.env web:/no/such/x", "cp: web:/no/such/x in the sandbox: ", "", 0},
	{"carboy cp no.env tree", "cp: one of SRC and DST must be in a sandbox, as NAME:PATH", "carboy cp ./src NAME:/workspace/src", 0},
	{"carboy diff web", "sandbox web: its workspace is its own", "carboy cp web:/workspace .", 0},
	{"carboy diff --only '[' nope", `glob "[": its [ begins no set, such as [a-z]`, "as in a .gitignore: ", 0},
	{"carboy run --isolation process --workspace tree --name looked -- touch new 2>/dev/null; TMPDIR=/proc carboy diff looked", "directory /proc: no file can be made there: ", "set TMPDIR to a directory that you can write to", 0},
	{"TMPDIR=/nowhere carboy diff looked", "the directory for temporary files: /nowhere: no such file or directory", "set TMPDIR to a directory that you can write to", 0},
	{"carboy volume create v --size 5x", `volume create: --size: "5x" ` + aSize, "", 0},
	{"carboy volume create v --size 10m", "volume size 10m: too small", "at least 16m", 0},
	{"carboy volume rm nope", `volume "nope": not found`, "carboy volume ls", 0},
	{"carboy session exec -- true", "session exec: --session is missing", "carboy session exec --session person_alice -- pwd", 0},
	{"carboy session exec --session s --timeout 5x -- true", `session exec: --timeout: "5x" ` + aTime, "", 0},
	{"carboy key add k", "key add: a key is of a team", "carboy key add --team TEAM k", 0},
	{"carboy key add --team t --path /no/such k", "--path: there is no directory /no/such", "make it first: mkdir -p /no/such", 0},
	{"carboy policy test", "policy test: REQUEST is missing", usageHint, 0},
	{"carboy policy learn", "policy learn: COMMAND is missing", usageHint, 0},
	{"carboy approve", "approve: COMMAND is missing", "carboy approve ls", 0},
	{"carboy approve allow", "approve allow: ID is missing", usageHint, 0},
	{"carboy approve allow seven", `"seven": not the number of a question`, "carboy approve ls", 0},
	{"carboy approve allow --scope ever 7", `--scope "ever": there is no such scope`, "once, sandbox or always", 0},
	{"carboy policy learn -o no/p.yaml -- true", "policy learn: -o: no/p.yaml: no such file or directory", "", 0},
	{"carboy policy learn --from ./no.json", "--from ./no.json: no such file or directory", "", 0},
	{"printf '[{\"seq\":1}]' >r.json; carboy policy learn --from ./r.json", "--from ./r.json: record 1: its verdict is neither allow nor deny", "carboy net log --json NAME > FILE", 0},
	{"printf 'FROM base\nRUN false\n' >tree/Dockerfile; carboy template build --name bad tree", `build: failed to run command "false": status 1`, "", 0},
	{"printf 'FROM base\nRUN curl -s https://x.example/\n' >tree/Dockerfile; carboy template build --name bad tree", `build: failed to run command "curl -s https://x.example/": status 6; refused: x.example`, "to allow: carboy template build --allow x.example --name bad tree", 0},
	{"carboy policy test --allow npm npmm", `request: "npmm": is neither a URL nor HOST:PORT nor a host name with a dot`, "did you mean --allow npm? GET https://", 0},
	{"carboy policy test --allow npm GET github", `request: "GET github": is neither a URL nor HOST:PORT`, "github is a preset, whose hosts carboy policy presets lists: GET https://", 0},
	{"carboy policy test --allow gihub GET https://x.example/", `--allow "gihub": "gihub" is no preset`, "did you mean --allow github?", 0},
	{"carboy session exec --session s --isolation process -- true", "isolation process: it is weaker than gvisor, which sessions have here", "leave it out, or have box.allowed_isolation name it", 0},
	{"carboy session exec --session s --on-timeout nah -- true", `session exec: --on-timeout: "nah" is not known here: use keep or reset`, "", 0},
	{"carboy session exec --session s --cwd rel -- true", "--cwd must be an absolute path inside the sandbox", "", 0},
	{"XDG_RUNTIME_DIR=/tmp/nowhere carboy daemon stop", "the daemon of ", "XDG_RUNTIME_DIR=", 0},
	{atOnce("create --isolation process --name twin"), "sandbox twin: the name is taken", "choose another name, or carboy rm twin", 0},
	{atOnce("volume create twins"), "volume twins: the name is taken", "choose another name, or carboy volume rm twins", 0},
	{"carboy completion fishy", "completion: fishy is no shell that is known here", "carboy completion bash, zsh or fish", 0},
	{"carboy serve --listen nonsense", `listen "nonsense": not an address`, "127.0.0.1:3000", 0},
	{"carboy serve --listen 127.0.0.1:99999", `listen "127.0.0.1:99999": "99999" is no port`, "from 0 to 65535: 127.0.0.1:3000", 0},
	{`printf '{\n "pool": 0,\n "idle_exit": "soon"\n}' > $XDG_CONFIG_HOME/carboy/config.json; carboy serve`, "CONFIG: line 3: idle_exit: ", "", 0},
	{`printf '{\n "idle_exitt": "5m"\n}' > $XDG_CONFIG_HOME/carboy/config.json; carboy serve`, "CONFIG: line 2: idle_exitt: there is no field", "", 0},
}

// atOnce is a line that runs a command twice at the same time: one of them is too late.
func atOnce(command string) string {
	return "carboy " + command + " >/dev/null & a=$!; carboy " + command + " >/dev/null & b=$!; wait $a; x=$?; wait $b; exit $((x+$?))"
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "tree", "gone"), 0o755),
		os.WriteFile(filepath.Join(dir, "tree", "file"), nil, 0o644),
		os.Symlink("gone", filepath.Join(dir, "tree", "link")),
		os.WriteFile(filepath.Join(dir, "no.tar"), []byte("hello\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "no.env"), []byte("not a line of one\n"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"web", "off", "nap"} {
		h.ok("create", "--isolation", "process", "--name", name)
	}
	h.ok("stop", "off")
	h.ok("pause", "--files-only", "nap")
	config := filepath.Join(h.dir, "config", "carboy", "config.json")
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, m := range mistakes {
		t.Run(m.line, func(t *testing.T) {
			out, code := shellIn(t, h, dir, m.line)
			_ = os.Remove(config)
			checkMistake(t, m, strings.ReplaceAll(out, config, "CONFIG"), code)
		})
	}
	if len(mistakes) < 60 {
		t.Errorf("%d mistakes, want 60 at least", len(mistakes))
	}
}

// shellIn runs a line of sh's in dir, with carboy in PATH and nothing to read.
func shellIn(t *testing.T, h *home, dir, line string) (stderr string, code int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(h.env, "PATH="+filepath.Dir(carboy)+":"+os.Getenv("PATH"))
	var b strings.Builder
	cmd.Stderr = &b
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return b.String(), cmd.ProcessState.ExitCode()
}

func checkMistake(t *testing.T, m mistake, stderr string, code int) {
	t.Helper()
	want := m.code
	if want == 0 {
		want = 125
	}
	if code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
	var said, hint string
	for line := range strings.Lines(stderr) {
		line = strings.TrimSuffix(line, "\n")
		if h, ok := strings.CutPrefix(line, "hint: "); ok {
			hint = h
		} else if s, ok := strings.CutPrefix(line, "carboy: "); ok {
			said = s
		} else {
			t.Errorf("a line that is neither an error nor a hint: %q", line)
		}
	}
	if !strings.HasPrefix(said, m.says) || said == "" {
		t.Errorf("says %q, want %q", said, m.says)
	}
	if !strings.HasPrefix(hint, m.hint) || m.hint == "" && hint != "" && m.says != "" {
		t.Errorf("hint %q, want %q", hint, m.hint)
	}
}

// Ctrl-C ends what follows something in silence, with the code that shells know.
func TestInterruptedIsQuiet(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.ok("create", "--isolation", "process", "--name", "web")
	cmd := exec.Command(carboy, "logs", "-f", "web")
	cmd.Env = h.env
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it follows
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || said.String() != "" {
		t.Errorf("exit code %d, %q; want 130 and nothing", code, said.String())
	}
}
