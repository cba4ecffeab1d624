package seccomp

import (
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// ProgramForTest is what Confine installs.
func ProgramForTest(o Options) []unix.SockFilter { return o.program() }

// AuditArchForTest is this machine's.
const AuditArchForTest = auditArch

// TableForTest has one verdict per number, made up of raw bytes.
func TableForTest(raw []byte) (map[uint32]verdict, []unix.SockFilter) {
	t := map[uint32]verdict{}
	for i := 0; i+3 < len(raw); i += 4 {
		nr := uint32(raw[i])<<2 | uint32(raw[i+1]&3)
		v := verdict{action: uint32(raw[i+2] & 7)}
		if raw[i+3]&1 != 0 {
			v.checks = []check{{[]condition{hasAny(int(raw[i+3]>>1&3), 1<<(raw[i+2]&31))}, uint32(raw[i+3])}}
		}
		if raw[i+3]&16 != 0 {
			v.checks = append(v.checks, check{[]condition{is(0, uint32(raw[i+2])), masked(1, 0xf0, uint32(raw[i+3]&0xf0))}, 77})
		}
		t[nr] = v
	}
	return t, assemble(t, unknown, kill, unknown)
}

// EvalForTest reads a table as a person would: without a program.
func EvalForTest(t map[uint32]verdict, nr uint32, args [6]uint64) uint32 {
	return eval(t, unknown, nr, args)
}

// GateForTest is what ConfineGate installs in a process of that ID, and its
// table.
func GateForTest(pid uint32) ([]unix.SockFilter, map[uint32]verdict) {
	t := gateTable(pid)
	return assemble(t, refuse, kill, refuse), t
}

// FilesForTest is the table that ConfineFiles enforces for a process of that ID.
func FilesForTest(pid uint32) map[uint32]verdict { return fileTable(pid) }

// GateCallsForTest are the numbers that a gate's table knows.
func GateCallsForTest() []uint32 { return slices.Collect(maps.Keys(gateTable(1))) }

// EvalGateForTest is EvalForTest for a gate's.
func EvalGateForTest(t map[uint32]verdict, nr uint32, args [6]uint64) uint32 {
	return eval(t, refuse, nr, args)
}

func eval(t map[uint32]verdict, other, nr uint32, args [6]uint64) uint32 {
	v, ok := t[nr]
	if !ok {
		return other
	}
	for _, c := range v.checks {
		holds := true
		for _, w := range c.when {
			holds = holds && (uint32(args[w.arg])&w.mask == w.value) != w.unlike
		}
		if holds {
			return c.action
		}
	}
	return v.action
}

// TableOfForTest is the table that Confine enforces.
func TableOfForTest(o Options) map[uint32]verdict { return table(o) }

// GroupsForTest are all groups.
func GroupsForTest() []Group {
	return []Group{
		SetID, IOUring, AsyncIO, Userfault, Keyring, BPF, Perf, Mounts, Namespaces, Inspection, Sockets,
		Modules, Clocks, Handles, Machine, Legacy, Terminals, Personalities, Devices, Leases,
	}
}

// Refused lists, for tests and reports, the numbers of a group that are
// refused whatever their arguments are.
func Refused(g Group) []uint32 {
	var nrs []uint32
	for _, r := range slices.Concat(refusals, refusalsHere) {
		if r.group == g {
			nrs = append(nrs, r.nrs...)
		}
	}
	return nrs
}

// ReaderForTest is the table that ConfineReader enforces for a process of that ID.
func ReaderForTest(pid uint32) map[uint32]verdict { return readerTable(pid) }

// ReadersForTest is the table that ConfineReaders enforces.
func ReadersForTest() map[uint32]verdict { return readersTable() }
