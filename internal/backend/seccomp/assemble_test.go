package seccomp_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/seccomp"
)

// machine runs a program as the kernel would: it knows what filters may use.
// It returns the action and how many instructions that took.
func machine(p []unix.SockFilter, arch, nr uint32, args [6]uint64) (action uint32, steps int, err error) {
	a := uint32(0)
	for pc := 0; pc < len(p); pc++ {
		steps++
		in := p[pc]
		taken := false
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			switch {
			case in.K == 0:
				a = nr
			case in.K == 4:
				a = arch
			case in.K >= 16 && in.K < 64 && in.K%8 == 0:
				a = uint32(args[(in.K-16)/8])
			default:
				return 0, steps, fmt.Errorf("load from %d", in.K)
			}
			continue
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= in.K
			continue
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.K)
			continue
		case unix.BPF_RET | unix.BPF_K:
			return in.K, steps, nil
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			taken = a == in.K
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			taken = a >= in.K
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			taken = a&in.K != 0
		default:
			return 0, steps, fmt.Errorf("code %#x", in.Code)
		}
		if taken {
			pc += int(in.Jt)
		} else {
			pc += int(in.Jf)
		}
	}
	return 0, steps, fmt.Errorf("ran off the end")
}

// samples are arguments that tell the checks of the table apart.
func samples() (all [][6]uint64) {
	values := []uint64{
		0, 1, 2, 3, 10, 16, 17, 0o755, 0o1755, 0o2755, 0o4755, 0o102755, 0o20644, 0o60644, 0o10644,
		unix.O_CREAT, unix.O_TMPFILE, unix.O_DIRECTORY, unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCGWINSZ, unix.TIOCSETD,
		unix.CLONE_NEWUSER, unix.CLONE_NEWUTS, unix.CLONE_VM | unix.CLONE_VFORK | 17, 0x40000, 0x400000, 0xffffffff,
		1 << 32, 1<<32 | unix.TIOCSTI, ^uint64(0), 6, 58, 132, 262, 0x8000a,
	}
	for i, a := range values {
		for j, b := range values {
			all = append(all, [6]uint64{a, b, values[(i+j)%len(values)], b})
		}
	}
	return all
}

// The program says of every number, whatever the arguments, what the table
// says; and of numbers that nobody has given out, that they do not exist.
func TestProgramIsTheTable(t *testing.T) {
	options := map[string]seccomp.Options{
		"strict": {}, "marks": {Marks: true}, "foreign": {Foreign: true},
		"open": {Open: seccomp.GroupsForTest()},
	}
	for _, g := range seccomp.GroupsForTest() {
		options[string(g)] = seccomp.Options{Open: []seccomp.Group{g}}
	}
	for name, o := range options {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := seccomp.ProgramForTest(o)
			most := 0
			args := samples()
			if name != "strict" {
				args = args[:40]
			}
			verdicts := seccomp.TableOfForTest(o)
			for nr := range uint32(1024) {
				for _, a := range args {
					got, steps, err := machine(p, seccomp.AuditArchForTest, nr, a)
					if want := seccomp.EvalForTest(verdicts, nr, a); got != want || err != nil {
						t.Fatalf("number %d, arguments %x: %#x, %v; want %#x", nr, a, got, err, want)
					}
					if a == args[0] {
						most = max(most, steps)
					}
				}
			}
			t.Logf("%d instructions, at most %d for a call of plain arguments", len(p), most)
			if len(p) > 1000 {
				t.Errorf("%d instructions", len(p))
			}
		})
	}
}

func TestForeign(t *testing.T) {
	const x32, i386 = 0x40000000, unix.AUDIT_ARCH_I386
	tests := []struct {
		name     string
		arch, nr uint32
		strict   uint32
	}{
		{"native", seccomp.AuditArchForTest, unix.SYS_READ, unix.SECCOMP_RET_ALLOW},
		{"i386", i386, 3, unix.SECCOMP_RET_KILL_PROCESS},
		{"arm", unix.AUDIT_ARCH_ARM, 3, unix.SECCOMP_RET_KILL_PROCESS},
		{"x32", seccomp.AuditArchForTest, x32 | unix.SYS_READ, unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{"x32-only", seccomp.AuditArchForTest, x32 | 520, unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{"last", seccomp.AuditArchForTest, ^uint32(0), unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, _, err := machine(seccomp.ProgramForTest(seccomp.Options{}), tt.arch, tt.nr, [6]uint64{}); got != tt.strict || err != nil {
				t.Errorf("strict: %#x, %v; want %#x", got, err, tt.strict)
			}
			if got, _, err := machine(seccomp.ProgramForTest(seccomp.Options{Foreign: true}), tt.arch, tt.nr, [6]uint64{}); got != unix.SECCOMP_RET_ALLOW || err != nil {
				t.Errorf("foreign: %#x, %v; want it allowed", got, err)
			}
		})
	}
}

// Whatever the table, the program says the same.
func FuzzAssemble(f *testing.F) {
	f.Add([]byte("\x01\x02\x03\x05\x02\x01\x01\x11\xff\x00\x00\x01"), uint32(6), uint64(3), uint64(0x10))
	many := make([]byte, 0, 4096)
	for i := range 1024 {
		many = append(many, byte(i>>2), byte(i&3), byte(i%7), byte(i*37))
	}
	f.Add(many, uint32(512), uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, raw []byte, nr uint32, a, b uint64) {
		if len(raw) > 4096 {
			return
		}
		table, p := seccomp.TableForTest(raw)
		args := [6]uint64{a, b, a ^ b, a + b}
		for _, n := range []uint32{nr % 1100, nr &^ (1 << 30) % (1 << 30)} {
			got, _, err := machine(p, seccomp.AuditArchForTest, n, args)
			if want := seccomp.EvalForTest(table, n, args); got != want || err != nil {
				t.Fatalf("number %d: %#x, %v; want %#x", n, got, err, want)
			}
		}
	})
}
