package control

// PrctlHold is a prctl(2) option that carboy's gVisor answers to the agent
// alone: it stops commands, as a HoldCall says, and none is told. Linux has no
// such option.
const PrctlHold = 0x43424831

// A HoldCall is the option's first argument. The second is a process, by its
// number as the agent has it: for HoldCount and HoldStop one that is left out
// besides the agent, 0 for none.
type HoldCall uint32

const (
	// HoldCount returns how many threads run.
	HoldCount HoldCall = iota
	// HoldStop stops those, and returns how many had not come to a stop before.
	HoldStop
	// HoldFree lets everything go on that HoldStop stopped; or one process, if
	// one is named.
	HoldFree
)
