package escape

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// planted is what lies on the host for as long as the tests run.
type planted struct {
	facts    facts.Facts
	secret   string
	root     *os.File // of the host; the daemon is started with it as descriptor 3
	undo     []func()
	identity map[string]string // of the host: what no box may change
}

// plant puts everything in its place. What it returns is to be removed even
// when it failed.
func plant() (*planted, error) {
	marker := "cbye" + hex.EncodeToString(random(6))
	p := &planted{secret: "secret of " + marker + "\n"}
	p.facts = facts.Facts{Marker: marker, EnvName: "ESCAPE_PLANTED", Rootless: os.Geteuid() != 0, Namespaces: map[string]string{}}
	for _, step := range []func() error{
		p.files, p.sockets, p.process, p.systemV, p.queue, p.key, p.names,
	} {
		if err := step(); err != nil {
			return p, err
		}
	}
	p.identity = hostIdentity()
	return p, nil
}

func (p *planted) remove() {
	for i := len(p.undo) - 1; i >= 0; i-- {
		p.undo[i]()
	}
}

func (p *planted) later(f func()) { p.undo = append(p.undo, f) }

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// files are readable by everybody: it is the wall that must keep them.
func (p *planted) files() error {
	dir := filepath.Join("/var/tmp", p.facts.Marker)
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
		return err
	}
	p.later(func() { os.RemoveAll(dir) })
	p.facts.SecretFile = filepath.Join(dir, "secret")
	sum := sha256.Sum256([]byte(p.secret))
	p.facts.SecretSHA256 = hex.EncodeToString(sum[:])
	names := []string{p.facts.SecretFile, "/dev/shm/" + p.facts.Marker, "/tmp/" + p.facts.Marker}
	if os.Geteuid() == 0 {
		names = append(names, "/usr/local/etc/"+p.facts.Marker, "/run/"+p.facts.Marker)
	}
	for _, name := range names {
		if err := errors.Join(os.WriteFile(name, []byte(p.secret), 0o644), os.Chmod(name, 0o644)); err != nil {
			return err
		}
		p.later(func() { os.Remove(name) })
	}
	var err error
	if p.root, err = os.Open("/"); err == nil {
		p.later(func() { p.root.Close() })
	}
	return err
}

func (p *planted) sockets() error {
	p.facts.Socket = "/run/" + p.facts.Marker + ".sock"
	if os.Geteuid() != 0 {
		p.facts.Socket = filepath.Join(filepath.Dir(p.facts.SecretFile), "sock")
	}
	p.facts.Abstract = p.facts.Marker + "-abstract"
	for _, name := range []string{p.facts.Socket, "@" + p.facts.Abstract} {
		l, err := net.Listen("unix", name)
		if err != nil {
			return err
		}
		p.serve(l)
	}
	if err := os.Chmod(p.facts.Socket, 0o777); err != nil {
		return err
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return err
	}
	p.serve(l)
	p.facts.Port = l.Addr().(*net.TCPAddr).Port
	addrs, err := net.InterfaceAddrs()
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && !ip.IP.IsLinkLocalUnicast() {
			p.facts.Addresses = append(p.facts.Addresses, ip.IP.String())
		}
	}
	return err
}

// serve greets whoever comes.
func (p *planted) serve(l net.Listener) {
	p.later(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("the host\n"))
			c.Close()
		}
	}()
}

// process runs one with the user id that commands have inside.
func (p *planted) process() error {
	cmd := exec.Command("sleep", "86400")
	cmd.Args[0] = p.facts.Marker + "-process"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 1000, Gid: 1000}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.facts.PID = cmd.Process.Pid
	p.later(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return nil
}

func (p *planted) systemV() error {
	r := random(3)
	p.facts.IPCKey = 1<<24 | int(r[0])<<16 | int(r[1])<<8 | int(r[2])
	key := uintptr(p.facts.IPCKey)
	const mode = unix.IPC_CREAT | unix.IPC_EXCL | 0o666
	kinds := []struct {
		name        string
		get, ctl    uintptr
		a, b        uintptr // further arguments of get
		removeThird bool    // semctl has the number of a semaphore before the command
	}{
		{"segment", unix.SYS_SHMGET, unix.SYS_SHMCTL, 4096, mode, false},
		{"semaphore", unix.SYS_SEMGET, unix.SYS_SEMCTL, 1, mode, true},
		{"queue", unix.SYS_MSGGET, unix.SYS_MSGCTL, mode, 0, false},
	}
	for _, k := range kinds {
		id, _, errno := unix.Syscall(k.get, key, k.a, k.b)
		if errno != 0 {
			return fmt.Errorf("make a System V %s: %w", k.name, errno)
		}
		p.later(func() {
			if k.removeThird {
				_, _, _ = unix.Syscall(k.ctl, id, 0, unix.IPC_RMID)
			} else {
				_, _, _ = unix.Syscall(k.ctl, id, unix.IPC_RMID, 0)
			}
		})
	}
	return nil
}

// key puts one into the session's keyring: daemons inherit it.
func (p *planted) key() error {
	p.facts.Key = p.facts.Marker + "-key"
	id, err := unix.AddKey("user", p.facts.Key, []byte(p.secret), unix.KEY_SPEC_SESSION_KEYRING)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) && os.Getenv(session) == "without keys" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("add a key: %w", err)
	}
	p.later(func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_SESSION_KEYRING, 0, 0) })
	return nil
}

func (p *planted) names() (err error) {
	if p.facts.Hostname, err = os.Hostname(); err != nil {
		return err
	}
	entries, err := os.ReadDir("/proc/self/ns")
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/ns/" + e.Name())
		if err != nil {
			return err
		}
		p.facts.Namespaces[e.Name()] = to
	}
	return err
}

// hostIdentity reads what a box could try to change.
func hostIdentity() map[string]string {
	id := map[string]string{}
	for _, name := range []string{
		"/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/overcommit_memory",
		"/proc/sys/net/ipv4/ip_forward", "/proc/sys/fs/suid_dumpable", "/sys/kernel/uevent_helper", "/proc/swaps", "/proc/modules",
	} {
		b, err := os.ReadFile(name)
		id[name] = fmt.Sprint(string(b), err)
	}
	return id
}
