package weak

// Of the way between the host and the guest agent.
const (
	PeerUnproved Weakness = "peer-unproved" // who answers at the agent's socket is the agent
)
