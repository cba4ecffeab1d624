package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"runtime"
	"strings"

	"github.com/carboy-sandbox/carboy/test/long"
)

// module begins every package's name.
const module = "github.com/carboy-sandbox/carboy/"

// lawful is a skip that may be. What scripts/machine.sh wants of every machine
// is no reason for one.
type lawful struct {
	pkg  string // below the module, as path.Match has it; "" for any
	test string // likewise, with all its subtests; "" for any
	said string // a pattern of what the test says
	why  string
	// when asks the machine, by no code of the product's, whether the reason
	// holds; nil where it always does. It is given what the pattern's group took.
	when func(m offers, group string) bool
	// again wants the same test to have passed elsewhere in this run.
	again bool
}

var list = []lawful{
	{"", "", `exec: "([^"]+)": executable file not found in \$PATH|this machine has no (\S+)`, "a program that users may lack is not installed here", lacksProgram, false},
	{"", "", `make test-long runs it`, "make test-long runs it", isShort, false},
	{"", "Fuzz*", ``, "a seed means nothing to its target", nil, false},
	{"internal/egress/link", "TestMemory", `the race detector`, "run a second time, without the race detector", nil, true},
	{"internal/egress", "TestOffersMemory", `the race detector`, "run a second time, without the race detector", nil, true},
	{"internal/guest/jail", "TestInitForgets", `linked with a C library`, "run a second time, without the race detector", nil, true},

	{"internal/backend/gvisor/filters", "TestProgramsAreGVisors", `for this architecture`, "another architecture", lacksAMD64, false},
	{"internal/backend/cgroup", "", `no version 1 tree`, "the kernel has cgroup version 2 alone", lacksV1, false},
	{"internal/guest/process", "", `no cgroup v1 here`, "the kernel has cgroup version 2 alone", lacksV1, false},
	{"internal/guest/jail", "", `no such cgroups here`, "the kernel has cgroup version 2 alone", lacksV1, false},
	{"internal/backend/cgroup", "", `no controller to spare here`, "version 2 has no controller that nobody uses", nil, false},
	{"internal/guest/jail", "TestLandlock", `Landlock has version \d+|this machine has it not`, "the kernel has not what a case of Landlock is about", nil, false},
	{"internal/guest/jail", "", `does not run programs of i386`, "the kernel runs no 32-bit programs", nil, false},
	{"internal/backend/seccomp", "TestRefusedCalls", `this kernel says`, "the kernel refuses a call by itself", nil, false},
	{"internal/session/quota/project", "", `names no file system with project quotas`, "test/vm boots a machine for it", nil, false},
	{"internal/session/quota/project", "TestNoProjects", `enforces projects`, "temporary files lie where projects have quotas", hasProjects, false},
	{"internal/skill", "TestChild", `it is for TestKilled`, "another test starts it", nil, false},
	{"test/e2e", "TestDoctorTriesNetworks", `/dev/net/tun is open`, "everybody may open /dev/net/tun here", tunIsOpen, false},
	{"test/escape", "", `not to be had here`, "the machine's kernel answers an attempt to nobody", nil, false},
	{"test/e2e", "TestE2BLatency", `make bench-e2b`, "make bench-e2b runs it", nil, false},
	{"test/agents", "", `make test-agents`, "make test-agents runs it", nil, false},
	{"test/agents", "TestFirstByte", `make bench-agents`, "make bench-agents runs it", nil, false},
	{"internal/backend/disk/hold", "TestKeeper*", `needs a kernel of version 6\.9`, "the kernel does not ask another process again", lacksResend, false},
	{"test/e2e", "TestHolderKilled", `needs a kernel of version 6\.9`, "the kernel does not ask another process again", lacksResend, false},
	{"internal/disk/scrub", "TestScrubErases", `mount -o loop: `, "the kernel does not mount what a case is about: folded names, quotas", nil, false},
	{"internal/guest", "TestActionsAndSuspension", `a socket of this machine is bound to a path`, "another test's socket is seen by an agent that has no machine of its own", nil, false},
	{"test/vm", "TestGuest", `for amd64`, "another architecture", lacksAMD64, false},
	{"test/vm", "TestBoxOnProject", `TestGuest has a machine for it`, "test/vm boots a machine for it", nil, false},
}

// skip is a test that was not run, and what it said.
type skip struct{ pkg, test, said string }

// excuse finds the reason why a test was skipped, where there is one.
func excuse(s skip, m offers) (lawful, bool) {
	for _, l := range list {
		if !matches(l.pkg, strings.TrimPrefix(s.pkg, module)) || !matches(l.test, firstName(s.test)) {
			continue
		}
		found := regexp.MustCompile(l.said).FindStringSubmatch(s.said)
		if found != nil && (l.when == nil || l.when(m, strings.Join(found[1:], ""))) {
			return l, true
		}
	}
	return lawful{}, false
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return pattern == "" || ok && err == nil
}

func firstName(test string) string {
	name, _, _ := strings.Cut(test, "/")
	return name
}

// offers is what a reason may ask the machine.
type offers interface {
	has(program string) bool
	read(file string) string
	mode(file string) os.FileMode
}

type machine struct{}

func (machine) has(program string) bool { _, err := exec.LookPath(program); return err == nil }
func (machine) read(file string) string { b, _ := os.ReadFile(file); return string(b) }
func (machine) mode(file string) os.FileMode {
	st, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return st.Mode()
}

func isShort(offers, string) bool { return !long.On() }

func lacksProgram(m offers, program string) bool { return !m.has(program) }

// lacksV1 reads the list of mounts: the file system's name is its third word.
func lacksV1(m offers, _ string) bool { return !strings.Contains(m.read("/proc/mounts"), " cgroup ") }

// hasProjects knows both spellings, XFS's and ext4's.
func hasProjects(m offers, _ string) bool {
	mounts := m.read("/proc/mounts")
	return strings.Contains(mounts, "pquota") || strings.Contains(mounts, "prjquota")
}

func tunIsOpen(m offers, _ string) bool { return m.mode("/dev/net/tun").Perm()&0o006 == 0o006 }

// lacksResend: FUSE_NOTIFY_RESEND is Linux 6.9's.
func lacksResend(m offers, _ string) bool {
	var major, minor int
	_, err := fmt.Sscanf(m.read("/proc/sys/kernel/osrelease"), "%d.%d", &major, &minor)
	return err == nil && (major < 6 || major == 6 && minor < 9)
}

func lacksAMD64(offers, string) bool { return runtime.GOARCH != "amd64" }
