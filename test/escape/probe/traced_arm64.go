package main

import "golang.org/x/sys/unix"

// fchmodCall makes a call fchmod(3, 04755).
func fchmodCall(r *unix.PtraceRegs) { r.Regs[8], r.Regs[0], r.Regs[1] = unix.SYS_FCHMOD, 3, 0o4755 }

func callResult(r *unix.PtraceRegs) int { return int(r.Regs[0]) }
