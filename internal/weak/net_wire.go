package weak

// Of the gate: what it reads of TLS, and the connections that it carries.
const (
	NetHelloLax       Weakness = "net-hello-lax"       // any bytes are a server name
	NetECHUnseen      Weakness = "net-ech-unseen"      // encrypted_client_hello is not noticed
	NetRetryUnchecked Weakness = "net-retry-unchecked" // a second ClientHello may ask for another name
	NetRecheckOff     Weakness = "net-recheck-off"     // a change of policy leaves open connections alone
	NetFlowsUnbounded Weakness = "net-flows-unbounded" // any number of connections may be open
	NetLimitsOff      Weakness = "net-limits-off"      // no limit of bytes, in one connection or in all
)
