package weak

// Of the probe that a sandbox makes of its own network.
const (
	NetProbeBlind Weakness = "net-probe-blind" // every attempt is said to have ended as it should
)
