package backendtest

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// echoSocket gives back what it is sent on a unix socket of its own.
const echoSocket = `
import os, shutil, socket, sys, threading
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
os.chmod(sys.argv[1], int(sys.argv[2], 8))
s.listen(8)
print("ready", flush=True)
def echo(c):
    while data := c.recv(65536): c.sendall(data)
    c.close()
while True: threading.Thread(target=echo, args=(s.accept()[0],), daemon=True).start()
`

// testSockets: a unix socket inside is reached from outside, with the rights of the instance's own user; who is not there is told from who can't be
// reached.
func testSockets(t *testing.T, s *suite) {
	w := s.open(t)
	b := w.begin(t)
	listen := func(path, mode, user string) {
		t.Helper()
		b.begin(t, with(argv("python3", "-c", echoSocket, path, mode), func(c *guestv1.Command) { c.User = user })).awaits("ready\n")
	}
	connect := func(path string) (net.Conn, error) {
		t.Helper()
		c, err := w.Dial(t.Context(), b.id, sandbox.GuestPort)
		must(t, err)
		return agent.Socket(t.Context(), c, path)
	}
	listen("/tmp/echo", "600", "")
	b.sh(t, "", "ln -s echo /tmp/link; touch /tmp/file; mkdir /tmp/dir; mkfifo /tmp/pipe; ln -s nowhere /tmp/broken")
	for _, path := range []string{"/tmp/echo", "/tmp/link"} {
		c, err := connect(path)
		if err != nil {
			t.Fatal(err)
		}
		big := make([]byte, 1<<20)
		go func() { _, _ = c.Write(big) }()
		if n, err := io.ReadFull(c, big); err != nil {
			t.Errorf("%s: %d bytes came back, %v", path, n, err)
		}
		c.Close()
	}
	for _, path := range []string{"/tmp/none", "/tmp/file", "/tmp/dir", "/tmp/pipe", "/tmp/broken", "/tmp/file/below", "/nowhere/at/all"} {
		if c, err := connect(path); !errors.Is(err, agent.ErrNobody) {
			t.Errorf("%s: %v, %v", path, c, err)
		}
	}
	for _, path := range []string{"", "tmp/echo", "/tmp/../tmp/echo", "/tmp/echo\x00x"} {
		if c, err := connect(path); err == nil || errors.Is(err, agent.ErrNobody) {
			t.Errorf("%q: %v, %v", path, c, err)
		}
	}
	if w.Name() != sandbox.WallProcess { // behind which nobody is root
		listen("/tmp/roots", "600", "root")
		if c, err := connect("/tmp/roots"); err == nil || errors.Is(err, agent.ErrNobody) {
			t.Errorf("root's: %v, %v", c, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, err := w.Dial(t.Context(), b.id, sandbox.GuestPort)
	must(t, err)
	cancel()
	if _, err := agent.Socket(ctx, c, "/tmp/echo"); err == nil {
		t.Error("a call that was called off went well")
	}
}
