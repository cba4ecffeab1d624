package link_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/link"
)

// gateVariable has this program be a gate, alone in its process as gates are,
// or the maker of a link.
const gateVariable = "LINK_TEST_GATE"

func TestMain(m *testing.M) {
	be, ok := map[string]func() error{"serve": beGate, "create": beCreator}[os.Getenv(gateVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := be(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beGate serves the TAP at descriptor 3, and answers each line on standard
// input with the memory that it has.
func beGate() error {
	debug.SetGCPercent(50)
	s, err := link.NewStack(os.NewFile(3, "tap"), link.Options{Handler: echo()})
	if err != nil {
		return err
	}
	s.Start()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		debug.FreeOSMemory()
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return err
		}
		open, _ := s.Open()
		fmt.Printf("%d %s\n", open, strings.Join(strings.Fields(field(status, "RssAnon:")+" "+field(status, "VmRSS:")), " "))
	}
	return nil
}

func field(status []byte, name string) string {
	for l := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(l, name); ok {
			return strings.TrimSuffix(strings.TrimSpace(v), " kB")
		}
	}
	return "0"
}

// gate is one in a process of its own.
type gate struct {
	t   testing.TB
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Reader
}

func startGate(t testing.TB, tap *os.File) *gate {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), gateVariable+"=serve")
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = r, os.Stderr, []*os.File{tap}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	tap.Close()
	t.Cleanup(func() { w.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &gate{t, cmd, w, bufio.NewReader(out)}
}

// memory is the gate's open connections, and its memory in KiB: what is its
// alone, and all that is resident.
func (g *gate) memory() (open, anonymous, resident int) {
	g.t.Helper()
	if _, err := fmt.Fprintln(g.in); err != nil {
		g.t.Fatal(err)
	}
	line, err := g.out.ReadString('\n')
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := fmt.Sscan(line, &open, &anonymous, &resident); err != nil {
		g.t.Fatalf("%q: %v", line, err)
	}
	return open, anonymous, resident
}

// A gate with a thousand connections is one of tens of megabytes, and still
// serves.
func TestMemory(t *testing.T) {
	needRoot(t)
	if raceDetector {
		t.Skip("the race detector needs more than the gate")
	}
	dev, err := link.Create(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.NetNS.Close()
	g := startGate(t, dev.TAP)
	w := &world{t: t, dev: dev}
	var conns []net.Conn
	for _, n := range []int{0, 100, 1000} {
		err := w.inside(func() error {
			for len(conns) < n {
				c, err := net.Dial("tcp", elsewhere4)
				if err != nil {
					return err
				}
				conns = append(conns, c)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range conns {
			_ = c.SetDeadline(time.Now().Add(soon))
			ping(t, c, "hello")
		}
		open, anonymous, resident := g.memory()
		t.Logf("%4d connections: %5d KiB of its own, %5d KiB resident", open, anonymous, resident)
		if most := 12<<10 + n*64; open != n || anonymous > most {
			t.Errorf("%d connections of %d, %d KiB: want %d at most", open, n, anonymous, most)
		}
	}
	for _, c := range conns {
		c.Close()
	}
}

// kill -9 of a gate: another takes the link over, and connections work again.
func TestGateIsKilled(t *testing.T) {
	needRoot(t)
	dev, err := link.Create(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.NetNS.Close()
	w := &world{t: t, dev: dev}
	g := startGate(t, dev.TAP)
	ping(t, w.mustDial("tcp", elsewhere4), "hello")
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	tap, err := link.Attach(dev.NetNS)
	if err != nil {
		t.Fatal(err)
	}
	startGate(t, tap)
	ping(t, w.mustDial("tcp", elsewhere4), "again")
	ping(t, w.mustDial("udp", elsewhere6), "again")
}
