package content

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const readyLimit = 15 * time.Second // how long one may take to serve

// process is that of one volume.
type process struct {
	id    string
	owner string        // of the volume
	up    chan struct{} // closed when it serves, or failed to
	err   error         // why it failed, once up is closed
	gone  chan struct{} // closed when it has ended

	broken atomic.Bool // nothing more comes from it: it has ended, or is about to

	cmd       *exec.Cmd
	conn      net.Conn
	transport *http.Transport

	// Guarded by Pool.mu.
	users int
	idle  *time.Timer
}

// begin starts it. It returns when it serves.
func (p *process) begin(o Options, t Target) error {
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return err
	}
	p.conn, p.transport = conn, transportOver(&watched{conn, &p.broken})
	// It serves more than one request; the directory only tells whose it is.
	p.cmd = role.Command(context.Background(), roleContent, []string{filepath.Dir(t.Tree.Point)}, theirs)
	p.cmd.Env = append(p.cmd.Env, role.FewDescriptors)
	p.cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWPID
	said := &role.Words{}
	p.cmd.Stderr = said
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	if err := o.Launch(p.cmd); err != nil {
		return errors.Join(fmt.Errorf("start a process for it: %w", err), conn.Close())
	}
	return p.await(in, out, order{Tree: t.Tree, Limit: t.Limit, Rootless: o.Rootless}, said)
}

// await gives it its order and waits until it serves, or reaps it.
func (p *process) await(in io.WriteCloser, out io.Reader, o order, said *role.Words) error {
	late := time.AfterFunc(readyLimit, func() { _ = p.cmd.Process.Kill() })
	err := errors.Join(json.NewEncoder(in).Encode(o), in.Close())
	err = errors.Join(err, role.AwaitReady(out))
	if late.Stop() && err == nil {
		go func() {
			_ = p.cmd.Wait()
			p.conn.Close()
			close(p.gone)
		}()
		return nil
	}
	_ = p.cmd.Process.Kill()
	err = errors.Join(err, p.cmd.Wait())
	p.conn.Close()
	return said.Error(context.Background(), err)
}

// end ends it, and waits until it has: then nothing of the volume is mounted by
// it any more. What is under way is given up.
func (p *process) end() {
	<-p.up
	if p.err != nil {
		return
	}
	p.conn.Close() // it ends by itself, unless it hangs
	select {
	case <-p.gone:
		return
	case <-time.After(readyLimit):
	}
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// socketPair returns two ends that no other child inherits.
func socketPair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make sockets: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket"), nil
}

// transportOver speaks HTTP/2 over one connection, of which there is no second.
func transportOver(conn net.Conn) *http.Transport {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	var once sync.Once
	return &http.Transport{
		Protocols: &p, DisableCompression: true,
		DialContext: func(context.Context, string, string) (c net.Conn, err error) {
			err = sandbox.Errorf(sandbox.Unavailable, "the volume's process has ended").WithHint("try again")
			once.Do(func() { c, err = conn, nil })
			return c, err
		},
	}
}

// watched is a connection that notes when nothing more comes over it: a write may
// fail before the read that waits does.
type watched struct {
	net.Conn
	broken *atomic.Bool
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.broken.Store(true)
	}
	return n, err
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	if err != nil {
		w.broken.Store(true)
	}
	return n, err
}
