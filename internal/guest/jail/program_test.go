package jail_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

const (
	programEnv = "JAIL_TEST_PROGRAM"
	// agentRan is what this program says where it is a script's interpreter.
	agentRan = "the agent's program ran"
)

func init() {
	if strings.HasPrefix(os.Args[0], "/proc/") && os.Getenv(programEnv) == "" {
		fmt.Println(agentRan)
		os.Exit(0)
	}
}

// Between fork and exec a command's process is the agent: the kernel finds no
// interpreter by that, where the agent's program lies on a mount that executes
// nothing any more. Elsewhere it does, and the agent does not start.
func TestKeepProgram(t *testing.T) {
	if os.Getenv(programEnv) != "" {
		asAgent(t)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for sealed, want := range map[bool]string{true: "permission denied", false: agentRan} {
		t.Run(fmt.Sprintf("sealed-%t", sealed), func(t *testing.T) {
			got := strings.Split(strings.TrimSpace(agentOn(t, sealed)), "\n")
			if kept := got[0] == "kept"; kept != sealed {
				t.Errorf("the agent says %q", got[0])
			}
			if len(got) != 9 || slices.ContainsFunc(got[1:], func(line string) bool { return !strings.HasSuffix(line, want) }) {
				t.Errorf("want %q of each, got\n%s", want, strings.Join(got[1:], "\n"))
			}
		})
	}
}

// agentOn executes this program on a mount of its own, and has the mount execute
// nothing then.
func agentOn(t *testing.T, sealed bool) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mount, err := unix.OpenTree(unix.AT_FDCWD, self, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(mount)
	program, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", mount))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	cmd := exec.Command("/proc/self/fd/3", "-test.run=^TestKeepProgram$")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), programEnv+"=1"), []*os.File{program}
	var out bytes.Buffer
	cmd.Stderr = &out
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	says, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil { // or it might not be mapped in yet
		_, err = says.Read(make([]byte, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	if sealed {
		if err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOEXEC}); err != nil {
			t.Error(err)
		}
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

// asAgent waits until it may begin, and says whether its program is kept, and what
// became of commands with it for an interpreter.
func asAgent(t *testing.T) {
	fmt.Println("begun")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := jail.KeepProgram(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		fmt.Fprintln(os.Stderr, "kept")
	}
	dir := playground(t)
	for name, content := range map[string]string{
		"self": "#!/proc/self/exe\n", "thread": "#!/proc/thread-self/exe\n", "second": "#!" + dir + "/self\n",
		"loader": string(interpreted(t, "/proc/self/exe")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	j := start(t, jail.Config{})
	for _, u := range []jail.User{nobody, {}} {
		for _, name := range []string{"self", "thread", "second", "loader"} {
			r, err := run(t, j, jail.Command{Argv: []string{filepath.Join(dir, name)}, User: u})
			if name == "loader" && err == nil { // it is no loader, whatever comes of it
				r.out = agentRan
			}
			if err == nil {
				err = errors.New(strings.TrimSpace(r.out))
			}
			fmt.Fprintf(os.Stderr, "%s of %d: %v\n", name, u.UID, err)
		}
	}
}
