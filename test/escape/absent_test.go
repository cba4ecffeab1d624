package escape

import (
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// kernelBound are attempts that need what some machine's kernel has not: a manner of
// system calls, or a facility that it can be built without.
var kernelBound = []string{"bpf", "i386-calls", "perf-events", "x32-calls"}

// notToBeHad is a lawful reason to skip: see test/report.
const notToBeHad = "not to be had here: "

var absentOnce struct {
	sync.Once
	why map[string]string
}

// absent returns the attempts that this machine's kernel answers to nobody, with what
// came instead: root finds nothing with them outside any sandbox. Such an attempt says
// nothing of a wall, whether it breaks or is refused.
func absent(t *testing.T) map[string]string {
	t.Helper()
	absentOnce.Do(func() {
		absentOnce.why = map[string]string{}
		for _, r := range probeHost(t, kernelBound, openRoot) {
			if r.Error != "" || !r.Found {
				absentOnce.why[r.Probe] = r.Error + r.Detail
			}
		}
	})
	return absentOnce.why
}

// openRoot runs a probe as it is, with all that this process may.
func openRoot(_ *testing.T, argv []string) *exec.Cmd { return exec.Command(argv[0], argv[1:]...) }

// tried drops the results of attempts that are not to be had here, unless one found
// something all the same.
func tried(t *testing.T, results []facts.Result) []facts.Result {
	t.Helper()
	why := absent(t)
	return slices.DeleteFunc(results, func(r facts.Result) bool {
		reason, is := why[r.Probe]
		if is && !r.Found {
			t.Logf("%s is "+notToBeHad+"%.200s", r.Probe, reason)
		}
		return is && !r.Found
	})
}

// TestKernelAnswers names, as skips, the attempts that this machine's kernel answers to
// nobody.
func TestKernelAnswers(t *testing.T) {
	names := attemptNames(t)
	for _, name := range kernelBound {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(names, name) {
				t.Fatalf("there is no attempt %q", name)
			}
			if why, is := absent(t)[name]; is {
				t.Skipf(notToBeHad+"%.200s", why)
			}
		})
	}
}
