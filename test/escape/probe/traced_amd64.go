package main

import "golang.org/x/sys/unix"

// fchmodCall makes a call fchmod(3, 04755).
func fchmodCall(r *unix.PtraceRegs) { r.Orig_rax, r.Rdi, r.Rsi = unix.SYS_FCHMOD, 3, 0o4755 }

func callResult(r *unix.PtraceRegs) int { return int(r.Rax) }
