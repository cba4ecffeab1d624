//go:build weakened

package jail_test

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Each weakness opens what it says, and without it that is shut. A weakness
// is seeded as the process starts, so each is a process of its own.
func TestWeakened(t *testing.T) {
	if name := os.Getenv("JAIL_TEST_SCRIPT"); name != "" {
		j := start(t, jail.Config{Strict: os.Getenv("JAIL_TEST_STRICT") != "", Hide: strings.Fields(os.Getenv("JAIL_TEST_HIDE"))})
		dir := playground(t)
		os.Stdout.WriteString("OUT<" + in(t, j, dir, nobody, name).out + ">\n")
		return
	}
	const call = `/usr/bin/python3 -c 'l = __import__("ctypes").CDLL(None, use_errno=True); l.syscall(%); print(__import__("ctypes").get_errno())'`
	errno := func(args string) string { return strings.ReplaceAll(call, "%", args) }
	hide := hidden(t)
	if err := os.WriteFile(hide+"/secret", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(hide, 0o755); err != nil {
		t.Fatal(err)
	}
	foreign := playground(t) + "/i386"
	if err := os.WriteFile(foreign, i386(), 0o755); err != nil {
		t.Fatal(err)
	}
	ipc, err := os.Readlink("/proc/self/ns/ipc")
	if err != nil {
		t.Fatal(err)
	}
	outside, err := net.Listen("unix", "@jail-test-weak")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	tests := []struct {
		weakness    weak.Weakness
		strict      bool
		script      string
		open, wants string // with the weakness, and without
	}{
		{weak.CapabilityKept, false, "grep CapEff /proc/self/status | tr -d '\t'", "CapEff:0000000000280002\n", "CapEff:0000000000000000\n"},
		{weak.CapabilityKept, true, "grep CapEff /proc/self/status | tr -d '\t'", "CapEff:0000000000280002\n", "CapEff:0000000000000000\n"},
		{weak.NoNewPrivsOff, false, "grep NoNew /proc/self/status | tr -d '\t'", "NoNewPrivs:0\n", "NoNewPrivs:1\n"},
		{weak.NoNewPrivsOff, true, "grep NoNew /proc/self/status | tr -d '\t'", "NoNewPrivs:0\n", "NoNewPrivs:1\n"},
		{weak.SetIDAllowed, false, "echo >f; chmod 4755 f 2>/dev/null && echo set || echo no", "set\n", "no\n"},
		{weak.SetIDAllowed, true, "echo >f; chmod 4755 f 2>/dev/null && echo set || echo no", "set\n", "no\n"},
		{weak.PIDsShared, true, "ps -A -o comm= | grep -c jail.test | head -1", "2\n", "0\n"},
		{weak.IPCShared, true, "[ $(readlink /proc/self/ns/ipc) = " + ipc + " ] && echo same || echo own", "same\n", "own\n"},
		{weak.ForeignAllowed, true, "chmod 755 $(dirname " + foreign + ") 2>/dev/null; (bash -c '" + foreign + "; exit $?') 2>/dev/null; echo $?", "7\n", "159\n"},
		{weak.ControlShown, true, "ls " + hide, "secret\n", ""},
		{weak.ProcKept, false, "cat /proc/[0-9]*/comm | grep -c jail.test", "2\n", "0\n"},
		{weak.ProcSysWritable, false, "grep -c ' /proc/sys ' /proc/self/mounts", "0\n", "1\n"},
		{weak.DescriptorsKept, false, "[ $(ls /proc/self/fd | wc -l) -gt 4 ] && echo more || echo own", "more\n", "own\n"},
		{weak.GroupsKept, false, "id -G | grep -qw 0 && echo 0 || echo none", "0\n", "none\n"},
		{weak.IOUringAllowed, false, errno("425, 0, 0"), "14\n", "38\n"},
		{weak.IOUringAllowed, true, errno("425, 0, 0"), "14\n", "38\n"},
		{weak.FilterOff, true, errno("250, -1, 0"), "95\n", "1\n"},
		{weak.KeyringAllowed, true, errno("250, -1, 0"), "95\n", "1\n"},
		{weak.UserfaultAllowed, true, errno("323, -1"), "22\n", "1\n"},
		{weak.BPFAllowed, true, errno("321, 99, 0, 0"), "22\n", "1\n"},
		{weak.PerfAllowed, true, errno("298, 0, 0, 0, 0, 0"), "14\n", "1\n"},
		{weak.MountAllowed, true, errno("166, b\"/nowhere\", -1"), "22\n", "1\n"},
		{weak.MountAllowed, false, "unshare -Urm mount -t tmpfs none /mnt 2>/dev/null && echo out || echo no", "out\n", "no\n"},
		{weak.NamespaceAllowed, true, "unshare -U echo out 2>/dev/null || echo no", "out\n", "no\n"},
		{weak.PtraceAllowed, true, errno("312, -1, -1, 0, 0, 0"), "3\n", "1\n"},
		{weak.RawSocketAllowed, true, errno("41, 40, 1, 0"), "0\n", "97\n"},
		{weak.ModuleAllowed, true, errno("174, 0, 0"), "38\n", "1\n"},
		{weak.ClockAllowed, true, errno("159, 0"), "14\n", "1\n"},
		{weak.LandlockOff, true, `/usr/bin/python3 -c 's = __import__("socket"); print(s.socket(s.AF_UNIX).connect_ex("\0jail-test-weak"))'`, "0\n", "1\n"},
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		name := string(tt.weakness)
		if tt.strict {
			name += "-strict"
		}
		t.Run(name, func(t *testing.T) {
			for seed, want := range map[string]string{string(tt.weakness): tt.open, "": tt.wants} {
				cmd := exec.Command(self, "-test.run=^TestWeakened$")
				cmd.Env = append(os.Environ(), "JAIL_TEST_SCRIPT="+tt.script, "JAIL_TEST_HIDE="+hide, "CARBOY_WEAKEN="+seed)
				if tt.strict {
					cmd.Env = append(cmd.Env, "JAIL_TEST_STRICT=1")
				}
				out, err := cmd.CombinedOutput()
				_, got, _ := strings.Cut(string(out), "OUT<")
				got, _, _ = strings.Cut(got, ">\n")
				if got != want || err != nil {
					t.Errorf("weakened by %q: got %q, want %q: %v\n%s", seed, got, want, err, out)
				}
			}
		})
	}
}
