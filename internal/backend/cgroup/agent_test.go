package cgroup_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	guestgroups "github.com/carboy-sandbox/carboy/internal/guest/cgroup"
)

// The agent's first thread is not the one that enters the part for commands: the
// memory of a process is that of its first thread's group, and so is its death.
func init() {
	if os.Getenv(helper) == "agent" {
		runtime.LockOSThread()
	}
}

// agentUID is root of an instance's user namespace, as the host knows it.
const agentUID = 524288

// agentProcess is an instance's agent as far as groups are concerned.
type agentProcess struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startAgent starts one in a user namespace of its own and in the group.
func startAgent(t *testing.T, g *cgroup.Group, c *cgroup.Commands) *agentProcess {
	t.Helper()
	plan, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copySelf(t))
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), helper+"=agent", "CGROUP_TEST_PLAN="+string(plan))
	cmd.Stderr = os.Stderr
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: agentUID, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		Credential: &syscall.Credential{},
	}
	a := &agentProcess{t: t, cmd: cmd}
	if a.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Skip("no user namespaces:", err)
	}
	t.Cleanup(func() { a.in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := g.Enter(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return a
}

// do has the agent do something; "" is its death.
func (a *agentProcess) do(line string) string {
	fmt.Fprintln(a.in, line)
	answer, _ := a.out.ReadString('\n')
	return strings.TrimSpace(answer)
}

// must is do for what has to succeed.
func (a *agentProcess) must(line string) {
	a.t.Helper()
	if got := a.do(line); got != "ok" {
		a.t.Fatalf("%s: %q", line, got)
	}
}

// agent does what the lines of standard input say.
func agent() {
	a := &agentRole{worker: make(chan func())}
	if err := json.Unmarshal([]byte(os.Getenv("CGROUP_TEST_PLAN")), &a.plan); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() {
		runtime.LockOSThread()
		for f := range a.worker {
			f()
		}
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(a.answer(strings.Fields(lines.Text())))
	}
	os.Exit(0)
}

type agentRole struct {
	plan   cgroup.Commands
	worker chan func() // what is to run on the thread that forks commands
	held   []byte
}

func (a *agentRole) answer(line []string) string {
	n := 0
	if len(line) > 1 {
		n, _ = strconv.Atoi(line[1])
	}
	switch line[0] {
	case "hold":
		a.held = hold(n)
	case "enter":
		return answerOf(a.onWorker(a.enter))
	case "hogs":
		return a.hogs(n)
	case "bomb":
		return answerOf(a.bomb(`f() { f & f & }; trap 'echo full; sleep 1000' EXIT; while :; do f 2>/dev/null; done`))
	case "fill":
		return answerOf(a.bomb(`trap 'echo full; exec sleep 1000' EXIT; while :; do sleep 1000 & done`))
	case "namespace": // of its own, for the thread that forks commands
		return answerOf(a.onWorker(func() error { return unix.Unshare(unix.CLONE_NEWCGROUP) }))
	case "where":
		return a.where()
	case "divide": // what the agent does with controllers of version 2
		return answerOf(os.WriteFile(a.plan.Root+"/commands/cgroup.subtree_control", []byte("+"+line[1]), 0))
	case "fork": // by another thread
		return answerOf(exec.Command("/bin/true").Run())
	case "threads":
		return a.threads()
	case "open": // for writing, by path
		f, err := os.OpenFile(line[1], os.O_WRONLY, 0)
		if err == nil {
			f.Close()
		}
		return answerOf(err)
	case "guest":
		return answerOf(a.guest())
	}
	return "ok"
}

func answerOf(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func (a *agentRole) onWorker(f func() error) error {
	done := make(chan error, 1)
	a.worker <- func() { done <- f() }
	return <-done
}

func (a *agentRole) enter() error {
	for _, name := range a.plan.Tasks {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString("0")
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// threads lists in which group of each kind the agent's threads are.
func (a *agentRole) threads() string {
	names, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err.Error()
	}
	in, out := 0, 0
	for _, n := range names {
		b, err := os.ReadFile("/proc/self/task/" + n.Name() + "/cgroup")
		switch {
		case err != nil:
		case strings.Count(string(b), "/box/commands\n") == len(a.plan.Tasks):
			in++
		default:
			out++
		}
	}
	return fmt.Sprintf("%d in, others %t", in, out > 0)
}

// where tells the group of version 2 that the worker sees itself in.
func (a *agentRole) where() (path string) {
	err := a.onWorker(func() error {
		b, err := os.ReadFile("/proc/thread-self/cgroup")
		for line := range strings.Lines(string(b)) {
			if p, ok := strings.CutPrefix(line, "0::"); ok {
				path = strings.TrimSpace(p)
			}
		}
		return err
	})
	return path + strings.TrimPrefix(answerOf(err), "ok")
}

// hogs starts n holders, one after the other is up or dead, and tells how
// many of them were killed.
func (a *agentRole) hogs(n int) string {
	r, w, err := os.Pipe()
	if err != nil {
		return err.Error()
	}
	var started []*exec.Cmd
	for range n {
		c := exec.Command("/proc/self/exe")
		c.Env = append(os.Environ(), helper+"=holder")
		c.Stdin = r
		up, err := c.StdoutPipe()
		if err == nil {
			err = a.onWorker(c.Start)
		}
		if err != nil {
			return err.Error()
		}
		started = append(started, c)
		_, _ = up.Read(make([]byte, 1))
	}
	w.Close()
	killed := 0
	for _, c := range started {
		err := c.Wait()
		if e, ok := errors.AsType[*exec.ExitError](err); ok && e.Sys().(syscall.WaitStatus).Signal() == unix.SIGKILL {
			killed++
		}
	}
	return fmt.Sprintf("%d killed", killed)
}

// bomb returns once forks are refused.
func (a *agentRole) bomb(script string) error {
	c := exec.Command("/bin/sh", "-c", script)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	out, err := c.StdoutPipe()
	if err == nil {
		err = a.onWorker(c.Start)
	}
	if err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}

// guest uses the version 2 tree as an instance's agent does.
func (a *agentRole) guest() error {
	tree, err := guestgroups.Open(guestgroups.Options{Root: a.plan.Root, PIDs: 40, OOMFile: a.plan.OOMFile, PIDsFile: a.plan.PIDsFile})
	if err != nil {
		return err
	}
	defer tree.Close()
	if !tree.LimitsPIDs() {
		return errors.New("the limit of processes is not seen")
	}
	g, err := tree.Acquire()
	if err != nil {
		return err
	}
	defer g.Release()
	for _, born := range []bool{true, false} { // or put there
		c := exec.Command("/bin/sh", "-c", "read x; (setsid sleep 1000 &); echo up; exec sleep 1000")
		c.SysProcAttr = &syscall.SysProcAttr{
			UseCgroupFD: born, CgroupFD: g.FD(), Credential: &syscall.Credential{Uid: 1000, Gid: 1000},
		}
		in, err := c.StdinPipe()
		if err != nil {
			return err
		}
		out, err := c.StdoutPipe()
		if err == nil {
			err = a.onWorker(c.Start)
		}
		if err != nil {
			return err
		}
		if !born {
			file := fmt.Sprintf("/proc/self/fd/%d/cgroup.procs", g.FD())
			if err := os.WriteFile(file, []byte(strconv.Itoa(c.Process.Pid)), 0); err != nil {
				return err
			}
		}
		fmt.Fprintln(in)
		if _, err := out.Read(make([]byte, 1)); err != nil {
			return err
		}
		if err := g.Kill(); err != nil {
			return err
		}
		if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			return fmt.Errorf("after the kill: %v", err) //nolint:errorlint // it may be nil
		}
	}
	return nil
}

const holderMiB = 24

// holder touches memory and keeps it until its input ends.
func holder() {
	b := hold(holderMiB)
	fmt.Println("up")
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(b)
	os.Exit(0)
}

func hold(mib int) []byte {
	b, err := unix.Mmap(-1, 0, mib<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		os.Exit(3)
	}
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return b
}
