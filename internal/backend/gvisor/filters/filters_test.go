package filters

import (
	"bytes"
	"flag"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform/systrap"
	sentryfilter "gvisor.dev/gvisor/runsc/boot/filter"
	sentryconfig "gvisor.dev/gvisor/runsc/boot/filter/config"
	goferfilter "gvisor.dev/gvisor/runsc/fsgofer/filter"
	goferconfig "gvisor.dev/gvisor/runsc/fsgofer/filter/config"
)

var update = flag.Bool("update", false, "write the programs of this architecture anew")

// sentryOptions are those of our wall, by what its flags are.
func sentryOptions() sentryconfig.Options {
	return sentryconfig.Options{Platform: (*systrap.Systrap)(nil).SeccompInfo()}
}

func goferOptions() goferconfig.Options {
	return goferconfig.Options{UDSCreateEnabled: true}
}

// built is what gVisor does without a program that was made beforehand.
func built(t testing.TB, rules, denied seccomp.SyscallRules, o seccomp.ProgramOptions) []bpf.Instruction {
	t.Helper()
	p := &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: denied}, {Rules: rules, Action: seccomp.Allow}},
		Options:  o,
	}
	insns, _, err := p.Build()
	if err != nil {
		t.Fatal(err)
	}
	return insns
}

// TestProgramsAreGVisors: each program, with this process's values in it, is
// what gVisor builds from its rules.
func TestProgramsAreGVisors(t *testing.T) {
	if *update {
		write(t)
		return
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("there are no programs for this architecture")
	}
	Register()
	t.Logf("as process %d", os.Getpid())
	for fd := range uint32(64) {
		o := sentryOptions()
		o.ControllerFD = fd
		program, ok := sentryfilter.GetPrecompiled(o.ConfigKey())
		rules, denied := sentryconfig.Rules(o)
		compare(t, "sentry", program, ok, o.Vars(), built(t, rules, denied, sentryconfig.SeccompOptions(o)))
		if t.Failed() {
			t.Fatal("go generate ./internal/backend/gvisor/filters, after reading what has changed in gVisor's rules")
		}
	}
	o := goferOptions()
	program, ok := goferfilter.GetPrecompiled(o.ConfigKey())
	rules, denied := goferconfig.Rules(o)
	compare(t, "gofer", program, ok, o.Vars(), built(t, rules, denied, seccomp.ProgramOptions{}))

	// The control: with another value the program is another.
	other := o.Vars()
	other.SetUint64("self_pid", uint64(os.Getpid()+1))
	insns, err := program.RenderInstructions(other)
	if err != nil || slices.Equal(insns, built(t, rules, denied, seccomp.ProgramOptions{})) {
		t.Errorf("a process's own number is of no matter: %v", err)
	}
}

func compare(t *testing.T, who string, program precompiledseccomp.Program, found bool, vars precompiledseccomp.Values, want []bpf.Instruction) {
	t.Helper()
	if !found {
		t.Errorf("%s: there is no program for our options", who)
		return
	}
	got, err := program.RenderInstructions(vars)
	if err != nil {
		t.Errorf("%s: %v", who, err)
		return
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: the program differs from what gVisor builds: %d instructions, %d", who, len(got), len(want))
	}
}

// TestProgramsAreGVisorsForInit is the same in a process that is the first of
// its namespace, as the sentry is.
func TestProgramsAreGVisorsForInit(t *testing.T) {
	if os.Getpid() == 1 {
		t.Skip("this is it")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a namespace of its own")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestProgramsAreGVisors$", "-test.v")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("as process 1\n")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestOtherOptionsHaveNone: an option that changes the rules is never given
// the program of ours.
func TestOtherOptionsHaveNone(t *testing.T) {
	Register()
	host := sentryOptions()
	host.HostNetwork = true
	if _, ok := sentryfilter.GetPrecompiled(host.ConfigKey()); ok {
		t.Error("sentry: there is a program for the host's network")
	}
	open := goferOptions()
	open.UDSOpenEnabled = true
	if _, ok := goferfilter.GetPrecompiled(open.ConfigKey()); ok {
		t.Error("gofer: there is a program for open sockets")
	}
}

// TestRulesAreGVisorsAndOurs: to gVisor's rules nothing is added but locks that nobody waits for, and the ids of files.
func TestRulesAreGVisorsAndOurs(t *testing.T) {
	Register()
	rules, _ := sentryconfig.Rules(sentryOptions())
	if !rules.Has(unix.SYS_FLOCK) {
		t.Error("a sentry can't hold a lock of the host's")
	}
	if files, _ := goferconfig.Rules(goferOptions()); !files.Has(unix.SYS_SETFSUID) || !files.Has(unix.SYS_SETFSGID) || ownerRules().Size() != 2 {
		t.Error("a gofer can't make files as others, or has more calls")
	}
	ours := lockRules()
	if got := ours.Size(); got != 2 {
		t.Errorf("there are rules for %d calls: %v", got, ours)
	}
	want := fmt.Sprint(seccomp.Or{
		seccomp.PerArg{seccomp.AnyValue{}, seccomp.EqualTo(unix.F_OFD_SETLK)},
		seccomp.PerArg{seccomp.AnyValue{}, seccomp.EqualTo(unix.F_OFD_GETLK)},
	})
	if got := fmt.Sprint(ours.Get(unix.SYS_FCNTL)); got != want {
		t.Errorf("of fcntl there is %s, want %s", got, want)
	}
}

// ownPID has a process's own number put in wherever the program has this one's:
// a rule of systrap's asks for it without saying so.
func ownPID(t *testing.T, p precompiledseccomp.Program) {
	const name = "self_pid_low32bits"
	pid := uint32(os.Getpid())
	if pid < 1000 {
		t.Fatal("this process's number is too small to be told from others in the program: try again")
	}
	for i, word := range p.Bytecode32 {
		if word == pid {
			p.VarOffsets[name] = append(p.VarOffsets[name], i)
			p.Bytecode32[i] = 0
		}
	}
	slices.Sort(p.VarOffsets[name])
}

// words are a line's worth of a program's, which gVisor writes one below the
// other.
var words = regexp.MustCompile(`(?:0x[0-9a-f]{8},\s*){1,8}`)

// write makes the source of the programs.
func write(t *testing.T) {
	allowLocks()
	allowOwners()
	var b bytes.Buffer
	fmt.Fprintln(&b, "// Code generated by go generate, from gVisor's rules. DO NOT EDIT.\n\npackage filters\n\n"+
		`import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"`)
	sentryPrograms, err := sentryconfig.PrecompiledPrograms()
	if err != nil {
		t.Fatal(err)
	}
	goferPrograms, err := goferconfig.PrecompiledPrograms()
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct {
		name, key string
		programs  []precompiledseccomp.Program
	}{
		{"sentry", sentryOptions().ConfigKey(), sentryPrograms},
		{"gofer", goferOptions().ConfigKey(), goferPrograms},
	} {
		i := slices.IndexFunc(of.programs, func(p precompiledseccomp.Program) bool { return p.Name == of.key })
		if i < 0 {
			t.Fatalf("gVisor has no program for %s", of.key)
		}
		ownPID(t, of.programs[i])
		fmt.Fprintf(&b, "\nfunc %s() []precompiledseccomp.Program {\n\treturn []precompiledseccomp.Program{%s}\n}\n",
			of.name, of.programs[i].Expr("\t", "precompiledseccomp"))
	}
	source, err := format.Source(words.ReplaceAllFunc(b.Bytes(), func(line []byte) []byte {
		return append(bytes.Join(bytes.Fields(line), []byte(" ")), '\n')
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("programs_"+runtime.GOARCH+".go", source, 0o644); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkSentry is what each start saves: to build the sentry's program, and
// to put values into the one that was made beforehand.
func BenchmarkSentry(b *testing.B) {
	o := sentryOptions()
	b.Run("built", func(b *testing.B) {
		for b.Loop() {
			rules, denied := sentryconfig.Rules(o)
			built(b, rules, denied, sentryconfig.SeccompOptions(o))
		}
	})
	b.Run("beforehand", func(b *testing.B) {
		for b.Loop() {
			Register()
			program, ok := sentryfilter.GetPrecompiled(o.ConfigKey())
			if !ok {
				b.Skip("there is none for this architecture")
			}
			if _, err := program.RenderInstructions(o.Vars()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
