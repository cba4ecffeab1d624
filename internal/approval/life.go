package approval

// State is what became of a question.
type State string

// The states. All but Asked and Granted are final.
const (
	Asked     State = "asked"     // something waits for an answer
	Allowed   State = "allowed"   // once: what waited has been let go, and nothing else is
	Granted   State = "granted"   // and so is what asks the same until the grant ends
	Denied    State = "denied"    // by a person
	Expired   State = "expired"   // nobody answered in time
	Voided    State = "voided"    // the policy, the gate or the daemon is another
	Withdrawn State = "withdrawn" // nothing waits any more
	Ended     State = "ended"     // a grant whose time was over
)

// Event is what may happen to a question.
type Event string

// The events.
const (
	Allow    Event = "allow"    // a person lets go what waits
	Grant    Event = "grant"    // and what asks the same later
	Deny     Event = "deny"     // a person does not
	Expire   Event = "expire"   // the time is over: to answer, or of a grant
	Void     Event = "void"     // what it was asked under holds no longer
	Withdraw Event = "withdraw" // the last that waited has gone
)

// States and Events are all that there are, in order.
var (
	States = []State{Asked, Allowed, Granted, Denied, Expired, Voided, Withdrawn, Ended}
	Events = []Event{Allow, Grant, Deny, Expire, Void, Withdraw}
)

// life is the whole life of a question. What is not in it does not happen.
var life = map[State]map[Event]State{
	Asked: {
		Allow: Allowed, Grant: Granted, Deny: Denied,
		Expire: Expired, Void: Voided, Withdraw: Withdrawn,
	},
	Granted: {Expire: Ended, Void: Voided},
}

// Next is the state after an event, and false where a question in that state has
// no such event.
func (s State) Next(e Event) (State, bool) {
	n, ok := life[s][e]
	return n, ok
}

// Final reports whether nothing more happens to a question.
func (s State) Final() bool { return len(life[s]) == 0 }

// LetsGo reports whether what waits for a question is let go by its coming into
// the state.
func (s State) LetsGo() bool { return s == Allowed || s == Granted }
