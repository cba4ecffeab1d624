package main

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

var traceProbes = []probe{{name: "traced-calls", run: tracedCalls}}

// tracedCalls has a child of its own stop as it makes a call that every filter
// allows, and makes another of it: one that sets a set-user-id bit.
func tracedCalls(t *trial) {
	fd, err := unix.MemfdCreate("traced", 0)
	if err != nil {
		t.note("a file in memory: %v", err)
		return
	}
	file := os.NewFile(uintptr(fd), "traced")
	defer file.Close()
	self, err := os.Executable()
	if err != nil {
		t.note("%v", err)
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, "euid")
	cmd.ExtraFiles = []*os.File{file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.note("a traced child: %v", err)
		return
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	got, err := exchangeCall(cmd.Process.Pid, fchmodCall)
	if err != nil {
		t.note("a traced call: %v", err)
		return
	}
	fi, err := file.Stat()
	if got == 0 && err == nil && fi.Mode()&os.ModeSetuid != 0 {
		t.find("a tracer made fchmod with a set-user-id bit of a call that was allowed")
		return
	}
	t.note("the call that a tracer made was answered %s", strconv.FormatInt(int64(got), 10))
}

// exchangeCall stops a child at its next call, changes that, and returns what
// came of it.
func exchangeCall(pid int, change func(*unix.PtraceRegs)) (result int, err error) {
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		return 0, err
	}
	if !status.Stopped() {
		return 0, errors.New("the child did not stop")
	}
	var regs unix.PtraceRegs
	if err := nextCall(pid, &status); err != nil {
		return 0, err
	}
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return 0, err
	}
	change(&regs)
	if err := unix.PtraceSetRegs(pid, &regs); err != nil {
		return 0, err
	}
	if err := nextCall(pid, &status); err != nil {
		return 0, err
	}
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return 0, err
	}
	return callResult(&regs), nil
}

// nextCall lets a stopped child go on to where a call begins or ends.
func nextCall(pid int, status *unix.WaitStatus) error {
	if err := unix.PtraceSyscall(pid, 0); err != nil {
		return err
	}
	if _, err := unix.Wait4(pid, status, 0, nil); err != nil {
		return err
	}
	if !status.Stopped() {
		return errors.New("the child did not stop")
	}
	return nil
}
