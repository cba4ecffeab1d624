package seccomp

import (
	"cmp"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// verdict is what becomes of one system call: the action of the first check
// that holds, or else action. Without an action it is refused with ENOSYS.
type verdict struct {
	checks []check
	action uint32 // SECCOMP_RET_*
}

// check decides where all its conditions hold.
type check struct {
	when   []condition
	action uint32
}

// condition compares the low 32 bits of an argument, which are all that the
// kernel reads of those we look at.
type condition struct {
	arg         int
	mask, value uint32
	unlike      bool // holds where arg&mask is not value
}

const everyBit = ^uint32(0)

func is(arg int, value uint32) condition { return condition{arg: arg, mask: everyBit, value: value} }

func masked(arg int, mask, value uint32) condition {
	return condition{arg: arg, mask: mask, value: value}
}

// hasAny holds where the argument has one of the bits.
func hasAny(arg int, bits uint32) condition { return condition{arg: arg, mask: bits, unlike: true} }

// span is a run of numbers with one verdict; it ends where the next begins.
type span struct {
	first uint32
	verdict
}

// assemble compiles a table. Numbers that are not in it are answered with
// other.
func assemble(table map[uint32]verdict, other, foreign, x32 uint32) []unix.SockFilter {
	p := []unix.SockFilter{
		load(offArch),
		jump(unix.BPF_JEQ, auditArch, 1, 0),
		ret(foreign),
		load(offNr),
		jump(unix.BPF_JGE, x32Bit, 0, 1),
		ret(x32),
	}
	return append(p, tree(spans(table, other))...)
}

// spans covers all numbers, in their order.
func spans(table map[uint32]verdict, other uint32) []span {
	var all []span
	put := func(first uint32, v verdict) {
		if n := len(all); n > 0 && len(all[n-1].checks) == 0 && len(v.checks) == 0 && all[n-1].action == v.action {
			return
		}
		all = append(all, span{first: first, verdict: v})
	}
	next := uint32(0)
	for _, nr := range slices.SortedFunc(maps.Keys(table), cmp.Compare) {
		if nr != next {
			put(next, verdict{action: other})
		}
		put(nr, table[nr])
		next = nr + 1
	}
	put(next, verdict{action: other})
	return all
}

// tree finds the span of the number, which is in the accumulator, by halves.
func tree(all []span) []unix.SockFilter {
	if len(all) == 1 {
		return all[0].program()
	}
	mid := len(all) / 2
	left, right := tree(all[:mid]), tree(all[mid:])
	var p []unix.SockFilter
	if n := len(left); n <= 255 {
		p = append(p, jump(unix.BPF_JGE, all[mid].first, uint8(n), 0))
	} else { // a conditional jump leads no further
		p = append(p, jump(unix.BPF_JGE, all[mid].first, 0, 1),
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(n)})
	}
	return append(append(p, left...), right...)
}

// program ends in a return, whatever the arguments are.
func (v verdict) program() []unix.SockFilter {
	var p []unix.SockFilter
	for _, c := range v.checks {
		p = append(p, c.program()...)
	}
	return append(p, ret(v.action))
}

// program falls through where a condition does not hold.
func (c check) program() []unix.SockFilter {
	p := []unix.SockFilter{ret(c.action)}
	for _, w := range slices.Backward(c.when) {
		p = append(w.program(uint8(len(p))), p...)
	}
	return p
}

// program jumps over the next skip instructions where w does not hold.
func (w condition) program(skip uint8) []unix.SockFilter {
	p := []unix.SockFilter{load(offArgs + 8*uint32(w.arg))}
	if w.value == 0 && w.mask != everyBit {
		if w.unlike {
			return append(p, jump(unix.BPF_JSET, w.mask, 0, skip))
		}
		return append(p, jump(unix.BPF_JSET, w.mask, skip, 0))
	}
	if w.mask != everyBit {
		p = append(p, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: w.mask})
	}
	if w.unlike {
		return append(p, jump(unix.BPF_JEQ, w.value, skip, 0))
	}
	return append(p, jump(unix.BPF_JEQ, w.value, 0, skip))
}
