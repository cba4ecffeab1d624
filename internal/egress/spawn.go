package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/role"
)

const (
	readyLimit = 15 * time.Second // how long a gate may take to serve
)

// start starts the process of a gate whose other state is written, and its
// watcher. A probed one records nothing until Verify is done with it. It
// returns before the gate serves: one.ready says when.
func (g *Gates) start(ctx context.Context, one *gate, tap *os.File) error {
	one.telling.Lock() // a policy that is set meanwhile is for the gate that comes
	defer one.telling.Unlock()
	cfg, err := g.config(ctx, one)
	if err != nil {
		return err
	}
	resolvers := g.opts.Resolvers
	if len(resolvers) == 0 {
		resolvers = machineResolvers()
	}
	cmd, in, out, err := g.spawn(one.dir, tap)
	if err != nil {
		return fmt.Errorf("start a gate: %w", err)
	}
	born := one.rebirth()
	ended := make(chan struct{})
	go func() { // nobody waits for it: a gate may outlive this process
		born.end(awaitReady(out))
		_ = cmd.Wait()
		close(ended)
	}()
	o := order{
		Sandbox: one.id, Root: filepath.Join(one.dir, dirRoot), UID: uidOf(one.id), Rootless: rootless(),
		Cert: one.state.Cert, Key: one.state.Key, Resolvers: resolvers, Config: cfg, Probed: one.isProbed(),
	}
	if err := g.command(one, cmd.Process.Pid, in, o); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	g.watch(one, ended)
	return nil
}

// command writes down who the gate is, and only then has it begin.
func (g *Gates) command(one *gate, pid int, in io.WriteCloser, o order) error {
	defer in.Close()
	id, err := procid.Of(pid)
	if err != nil {
		return fmt.Errorf("find the gate: %w", err)
	}
	st, err := one.update(func(s *state) { s.Process = id })
	if err != nil {
		return err
	}
	if err := enter(st.Groups, pid); err != nil {
		return err
	}
	if err := json.NewEncoder(in).Encode(o); err != nil {
		return fmt.Errorf("tell the gate: %w", err)
	}
	return nil
}

// spawn executes this binary as a gate that waits for its order.
func (g *Gates) spawn(dir string, tap *os.File) (cmd *exec.Cmd, in io.WriteCloser, out io.Reader, err error) {
	control, err := listen(dir, fileSocket)
	if err != nil {
		return nil, nil, nil, err
	}
	defer control.Close()
	offers, err := listen(offersDir(dir), fileOffers)
	if err != nil {
		return nil, nil, nil, err
	}
	defer offers.Close()
	files := []*os.File{tap, control}
	for _, name := range []string{fileLogA, fileLogB} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, privateMode)
		if err != nil {
			return nil, nil, nil, err
		}
		defer f.Close()
		files = append(files, f)
	}
	files = append(files, offers)
	cmd = role.Command(context.Background(), RoleGate, []string{dir}, files...) // it outlives this process
	cmd.Env = append(cmd.Env, environment()...)
	if rootless() {
		ownNamespace(cmd.SysProcAttr)
	}
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	crash, err := os.OpenFile(filepath.Join(dir, fileCrash), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, privateMode)
	if err != nil {
		return nil, nil, nil, err
	}
	defer crash.Close()
	cmd.Stderr = crash
	if err := cmd.Start(); err != nil {
		return nil, nil, nil, err
	}
	return cmd, in, pipe, nil
}

// environment is a gate's. It holds the variables by which this daemon was
// told whom to trust: its gates trust the same.
func environment() []string {
	env := []string{role.FewDescriptors}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// listen makes a socket of a gate in dir: what is said to it, or offered by it.
// Its path may be too long for an address, so it is bound through the open
// directory.
func listen(dir, name string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name)})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(filepath.Join(dir, name), privateMode); err != nil {
		return nil, err
	}
	return l.File()
}

// birth is how the start of a gate's process went.
type birth struct {
	done chan struct{} // closed once it serves, or can't
	once sync.Once
	err  error
}

func newBirth() *birth { return &birth{done: make(chan struct{})} }

func (b *birth) end(err error) {
	b.once.Do(func() {
		b.err = err
		close(b.done)
	})
}

// served reports whether it came to serve.
func (b *birth) served() bool {
	select {
	case <-b.done:
		return b.err == nil
	default:
		return false
	}
}

// rebirth returns the birth of a process that is about to be. Whoever waits
// already waits for that one.
func (one *gate) rebirth() *birth {
	one.mu.Lock()
	defer one.mu.Unlock()
	select {
	case <-one.born.done:
		one.born = newBirth()
	default:
	}
	return one.born
}

// awaitReady reads what a gate says first. Anything but that it serves is why
// it does not.
func awaitReady(out io.Reader) error {
	err := role.AwaitReady(out)
	if errors.Is(err, role.ErrNotReady) {
		return fmt.Errorf("the gate %w", err)
	}
	if err != nil {
		return fmt.Errorf("the gate: %w", err)
	}
	return nil
}

// enter moves a process into an instance's control groups.
func enter(procs []string, pid int) error {
	for _, f := range procs {
		if err := os.WriteFile(f, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("enter the instance's cgroup: %w", err)
		}
	}
	return nil
}

// join has the gate count as its instance's, now and when it is started again. It
// does not wait: moving a process between groups of version 1 may take 20 ms,
// in which the instance can be started. Verify wants to know how it went.
func (g *Gates) join(one *gate, procs []string) error {
	st, err := one.update(func(s *state) { s.Groups = procs })
	if err != nil {
		return err
	}
	if st.Process.IsZero() { // it is yet to be started, and will be started there
		one.joined <- nil
		return nil
	}
	g.tasks.Go(func() {
		err := enter(procs, st.Process.PID)
		if err != nil && !procid.Alive(st.Process) {
			err = nil // the one that comes enters them by itself
		}
		one.joined <- err
	})
	return nil
}

// machineResolvers are those of this machine, as it is configured now.
func machineResolvers() (all []netip.AddrPort) {
	raw, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return nil
	}
	cfg, err := dns.ClientConfigFromReader(bytes.NewReader(raw))
	if err != nil {
		return nil
	}
	port, err := strconv.ParseUint(cfg.Port, 10, 16)
	if err != nil {
		port = 53
	}
	for _, s := range cfg.Servers {
		if a, err := netip.ParseAddr(s); err == nil {
			all = append(all, netip.AddrPortFrom(a, uint16(port)))
		}
	}
	return all
}
