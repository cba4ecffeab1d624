package weak

// Of the gate's process.
const (
	NetGateAsRoot     Weakness = "net-gate-as-root"    // it keeps the daemon's user and root directory
	NetGateUnfiltered Weakness = "net-gate-unfiltered" // it may make any system call
)
