package control

// PrctlHold is a prctl(2) option that carboy's gVisor answers to the agent
// alone: it stops commands, as a HoldCall says, and none is told. Linux has no
// such option.
//
// The option's first argument is a HoldCall, the second a process by its number as
// the agent has it, 0 for none.
const PrctlHold = 0x43424831

// A HoldCall is what PrctlHold does.
type HoldCall uint32

const (
	// HoldCount returns how many threads run, but for the agent's and the named process's.
	HoldCount HoldCall = iota
	// HoldStop stops those, and returns how many had not come to a stop before.
	HoldStop
	// HoldFree lets the named process go on that HoldStop stopped, or everything.
	HoldFree
	// HoldPassed returns 1 where something waits in a unix socket of the named process, among which may be descriptors, else 0.
	HoldPassed
)
