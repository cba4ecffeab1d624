package jail_test

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// Init is a copy of the agent that has forgotten it.
func TestInitForgets(t *testing.T) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SECRET_OF_THE_AGENT", "x")
	j := start(t, jail.Config{})
	proc := fmt.Sprintf("/proc/%d/", j.InitPIDForTest())
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if name, _ := os.Readlink(proc + "fd/" + fd.Name()); name != "/dev/null" {
			t.Errorf("descriptor %s is %s", fd.Name(), name)
		}
	}
	// Programs that list processes read both.
	for _, file := range []string{"environ", "cmdline"} {
		b, err := os.ReadFile(proc + file)
		text := string(bytes.Trim(b, "\x00"))
		if err != nil || text != "" && (file != "cmdline" || text != jail.InitName) {
			t.Errorf("%s: %q, %v; want nothing but a name", file, text, err)
		}
	}
	if _, _, _, foreign, err := jail.ParseLayoutForTest(maps, reflect.ValueOf(jail.Start).Pointer()); foreign || err != nil {
		t.Skip("this test was linked with a C library, whose memory init keeps:", err)
	}
	left, err := os.ReadFile(proc + "maps")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(left)), "\n")
	if n := len(strings.Split(string(maps), "\n")); len(lines) > 4 || n < 10 {
		t.Errorf("init has %d mappings of the agent's %d:\n%s", len(lines), n, left)
	}
	for _, line := range lines {
		if f := strings.Fields(line); len(f) < 5 || f[4] != "0" {
			t.Errorf("init has a file mapped: %s", line)
		}
	}
}

func TestParseLayout(t *testing.T) {
	const static = `00400000-00a00000 r-xp 00000000 fe:00 1 /usr/bin/guest
00a00000-01200000 r--p 00600000 fe:00 1 /usr/bin/guest
01200000-01260000 rw-p 00e00000 fe:00 1 /usr/bin/guest
c000000000-c000400000 rw-p 00000000 00:00 0
7ffd0000-7ffe0000 rw-p 00000000 00:00 0 [stack]
7fff0000-7fff1000 r-xp 00000000 00:00 0 [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
`
	tests := []struct {
		name, maps string
		code, end  uintptr
		foreign    bool
		fails      bool
	}{
		{"static", static, 0x400000, 0xa00000, false, false},
		{"with-a-library", static + "7f0000000000-7f0000001000 r-xp 00000000 fe:00 2 /lib/libc.so.6\n", 0x400000, 0xa00000, true, false},
		{"no-names", "00400000-00a00000 r-xp 00000000 00:00 0\n", 0x400000, 0xa00000, false, false},
		{"code-elsewhere", "00500000-00a00000 r-xp 00000000 fe:00 1 /usr/bin/guest\n", 0, 0, true, false},
		{"empty", "", 0, 0, true, false},
		{"broken", "00400000 r-xp 0 0 0 /x\n", 0, 0, false, true},
		{"backwards", "00500000-00400000 r-xp 0 0 0 /x\n", 0, 0, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, end, top, foreign, err := jail.ParseLayoutForTest([]byte(tt.maps), 0x400100)
			if (err != nil) != tt.fails {
				t.Fatalf("err = %v", err)
			}
			if err == nil && (code != tt.code || end != tt.end || foreign != tt.foreign) {
				t.Errorf("got %#x-%#x, foreign %t", code, end, foreign)
			}
			if tt.name == "static" && top != 0xc000400000 {
				t.Errorf("top = %#x", top)
			}
		})
	}
}

func FuzzParseLayout(f *testing.F) {
	f.Add([]byte("00400000-00a00000 r-xp 00000000 fe:00 1 /usr/bin/guest\n"))
	f.Fuzz(func(t *testing.T, maps []byte) {
		code, end, top, _, err := jail.ParseLayoutForTest(maps, 0x400100)
		if err == nil && (code > end || end > top) {
			t.Errorf("code %#x-%#x, top %#x", code, end, top)
		}
	})
}

func BenchmarkStart(b *testing.B) {
	for _, strict := range []bool{false, true} {
		b.Run(fmt.Sprintf("strict-%t", strict), func(b *testing.B) {
			for b.Loop() {
				j, err := jail.Start(jail.Config{PIDNamespace: true, Strict: strict})
				if err != nil {
					b.Fatal(err)
				}
				j.Close()
			}
		})
	}
}
