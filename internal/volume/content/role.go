package content

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/seccomp"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// roleContent is the name by which this binary is executed again.
const roleContent = "carboy-volume-content"

// Roles are those of this package.
func Roles() role.Table {
	return role.Table{roleContent: func() error { return roleMain(os.Stdin, os.Stdout) }}
}

// order is what the process is told.
type order struct {
	Tree tree.Tree `json:"tree"`
	// Rootless: the process is in a user namespace in which it is to be root.
	Rootless bool  `json:"rootless"`
	Limit    int64 `json:"limit"` // bytes of one file; 0: as large as the disk allows
}

const (
	fdSocket = 3

	maxFiles      = 1024
	processMemory = 64 << 20 // what the collector keeps to, if it can
	nobody        = 65534
)

// roleMain mounts the volume, gives up everything else, and serves the one
// connection that it was given until that ends.
func roleMain(in io.Reader, out io.Writer) error {
	var o order
	if err := json.NewDecoder(bufio.NewReader(in)).Decode(&o); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	log.SetOutput(io.Discard) //nolint:forbidigo // net/http's words may hold a client's bytes
	debug.SetMemoryLimit(processMemory)
	_ = time.Local.String() // read before it is out of reach
	sock := os.NewFile(fdSocket, "socket")
	conn, err := net.FileConn(sock)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	sock.Close()
	dir, err := enter(o)
	if err != nil {
		return err
	}
	if err := confine(); err != nil {
		return fmt.Errorf("give up rights: %w", err)
	}
	if err := role.Ready(out); err != nil {
		return err
	}
	return serve(conn, handler{root: root{dir}, limit: o.Limit})
}

// enter makes the volume this process's whole file system and returns its root,
// open.
func enter(o order) (int, error) {
	if o.Rootless {
		if err := role.BecomeRoot(); err != nil {
			return -1, err
		}
	}
	unix.Umask(0)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return -1, fmt.Errorf("make mounts private: %w", err)
	}
	data, err := o.Tree.Mount(context.Background(), o.Tree.Point)
	if err != nil {
		return -1, err
	}
	if !weak.On(weak.VolumeLinksFollowed) {
		if err := pivot(data); err != nil {
			return -1, fmt.Errorf("leave the host's file system: %w", err)
		}
		data = "/"
	}
	return unix.Open(data, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// pivot makes dir the root of this mount namespace, and what was the root is
// gone.
func pivot(dir string) error {
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(unix.AT_FDCWD, dir, 0, &attr); err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return os.Chdir("/")
}

// confine leaves this process the files of the volume, whoever owns them, and
// its socket.
func confine() error {
	var errs []error
	for what, limit := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: maxFiles} {
		errs = append(errs, unix.Setrlimit(what, &unix.Rlimit{Cur: limit, Max: limit}))
	}
	errs = append(errs, becomeNobody(), unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0), seccomp.ConfineFiles())
	return errors.Join(errs...)
}

// oneListener hands out one connection, and no more until it is closed.
type oneListener struct {
	conn chan net.Conn
	done chan struct{}
	addr net.Addr
}

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *oneListener) Close() error { return nil }

func (l *oneListener) Addr() net.Addr { return l.addr }

// serve answers what comes over conn until it ends. Requests under way are given
// up then: their client has gone.
func serve(conn net.Conn, h http.Handler) error {
	l := &oneListener{conn: make(chan net.Conn, 1), done: make(chan struct{}), addr: conn.LocalAddr()}
	l.conn <- conn
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler: h, Protocols: &p, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ReadHeaderTimeout: time.Minute,
		ConnState: func(_ net.Conn, st http.ConnState) {
			if st == http.StateClosed {
				close(l.done)
			}
		},
	}
	if err := srv.Serve(l); !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
