package interpreter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/carboy-sandbox/carboy/internal/guest/interpreter/jupyter"
)

// process is a kernel that was started, before anyone speaks to it.
type process struct {
	cmd     *exec.Cmd
	network string    // of its sockets: tcp or unix
	address [5]string // by the numbers below
	key     string
	ready   *os.File // says when it takes messages, or nil
	errors  *tail
	gone    chan struct{} // closed when it has ended
}

// The sockets of a kernel.
const (
	shell = iota
	iopub
	stdin
	control
	heartbeat
)

// connection is the file that tells a kernel where to listen.
type connection struct {
	Transport string `json:"transport"`
	IP        string `json:"ip"`
	Shell     int    `json:"shell_port"`
	IOPub     int    `json:"iopub_port"`
	Stdin     int    `json:"stdin_port"`
	Control   int    `json:"control_port"`
	Heartbeat int    `json:"hb_port"`
	Key       string `json:"key"`
	Scheme    string `json:"signature_scheme"`
	Kernel    string `json:"kernel_name"`
}

// errMissing says that a Python has not what a kernel needs.
var errMissing = errors.New("module is missing")

// begin starts a kernel in the directory cwd. Python's listens in dir, on
// sockets that no port leads to; others are not sure to know how, and listen
// on the loopback.
func (s *Server) begin(spec jupyter.Spec, python, cwd string) (*process, error) {
	dir, err := os.MkdirTemp(s.o.Dir, "k")
	if err != nil {
		return nil, fmt.Errorf("start a kernel: %w", err)
	}
	p := &process{key: jupyter.NewID(), errors: &tail{}, gone: make(chan struct{})}
	conn := connection{Key: p.key, Scheme: "hmac-sha256", Kernel: spec.Name}
	if python != "" {
		p.local(&conn, filepath.Join(dir, "s"))
	} else if err := p.loopback(&conn); err != nil {
		return nil, fmt.Errorf("start a kernel: %w", err)
	}
	file := filepath.Join(dir, "connection.json")
	data, err := json.Marshal(conn)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, fmt.Errorf("start a kernel: %w", err)
	}
	argv := make([]string, 0, len(spec.Argv))
	for _, a := range spec.Argv {
		argv = append(argv, strings.ReplaceAll(a, "{connection_file}", file))
	}
	if python != "" {
		argv = []string{python, filepath.Join(s.o.Dir, launcher), file, "3"}
	}
	env := s.o.Env
	for k, v := range spec.Env {
		env = append(env[:len(env):len(env)], k+"="+v)
	}
	if err := p.exec(argv, env, cwd, python != ""); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	go p.wait(dir)
	return p, nil
}

// local has the kernel listen on unix sockets without a file: one that had a
// file could not be paused with its sandbox.
func (p *process) local(c *connection, path string) {
	path = "@" + path
	c.Transport, c.IP = "ipc", path
	c.Shell, c.IOPub, c.Stdin, c.Control, c.Heartbeat = 1, 2, 3, 4, 5
	p.network = "unix"
	for i := range p.address {
		p.address[i] = fmt.Sprintf("%s-%d", path, i+1)
	}
}

// loopback finds five ports that are free.
func (p *process) loopback(c *connection) error {
	c.Transport, c.IP, p.network = "tcp", "127.0.0.1", "tcp"
	ports := []*int{&c.Shell, &c.IOPub, &c.Stdin, &c.Control, &c.Heartbeat}
	for i, port := range ports {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer ln.Close() // all five are held until the last is found
		addr, ok := ln.Addr().(*net.TCPAddr)
		if !ok {
			return errors.New("a listener without a port")
		}
		*port, p.address[i] = addr.Port, addr.String()
	}
	return nil
}

// exec starts the program in a session of its own, so that an interrupt
// reaches what it has started too.
func (p *process) exec(argv, env []string, cwd string, tells bool) error {
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env, p.cmd.Dir = env, cwd
	p.cmd.Stdout, p.cmd.Stderr = p.errors, p.errors
	p.cmd.WaitDelay = killDelay // what it left behind may hold its output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if !tells {
		return p.cmd.Start()
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	p.cmd.ExtraFiles = []*os.File{w}
	if err := p.cmd.Start(); err != nil {
		r.Close()
		return err
	}
	p.ready = r
	return nil
}

func (p *process) wait(dir string) {
	_ = p.cmd.Wait()
	p.signal(syscall.SIGKILL) // what it left behind in its session's group
	os.RemoveAll(dir)
	close(p.gone)
}

// started waits until the kernel takes messages, where it says so.
func (p *process) started(ctx context.Context) error {
	if p.ready == nil {
		return nil
	}
	defer p.ready.Close()
	stop := context.AfterFunc(ctx, func() { p.ready.Close() })
	defer stop()
	line, err := io.ReadAll(io.LimitReader(p.ready, 256))
	word, rest, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
	switch {
	case word == "ready":
		return nil
	case word == "missing":
		return fmt.Errorf("%w: %s", errMissing, rest)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	return fmt.Errorf("the kernel ended before it was ready: %s", p.errors)
}

// signal sends a signal to the kernel and to what it has started.
func (p *process) signal(sig syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, sig)
}

// kill ends the kernel and waits for it.
func (p *process) kill() {
	select {
	case <-p.gone:
	default:
		p.signal(syscall.SIGKILL)
		<-p.gone
	}
}

// tail keeps the end of what a program wrote.
type tail struct {
	mu  sync.Mutex
	end []byte
}

const maxTail = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	if over := len(t.end) - maxTail; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := string(bytes.TrimSpace(t.end)); text != "" {
		return text
	}
	return "it wrote nothing"
}
