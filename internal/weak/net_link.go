package weak

// Of the link between a sandbox and its gate.
const (
	NetSourceAny     Weakness = "net-source-any"     // frames of any sender are taken
	NetFragmentsOpen Weakness = "net-fragments-open" // parts of packets are put together
	NetOptionsOpen   Weakness = "net-options-open"   // packets with IP options are taken
	NetOversizeOpen  Weakness = "net-oversize-open"  // frames may be longer than the MTU
	NetEchoOpen      Weakness = "net-echo-open"      // echo requests to any address are answered
	NetBoundsOff     Weakness = "net-bounds-off"     // no bound on connections and flows
)
