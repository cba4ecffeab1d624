package sandbox

import (
	"context"
	"slices"
)

// maxPublish is how many ports one sandbox may have on the machine.
const maxPublish = 64

// eventPorts is the type of events about ports on the machine.
const eventPorts = "ports"

// Publish is a port of the machine's loopback that leads to one inside, for the
// sandbox's owner alone, while the sandbox runs.
type Publish struct {
	Port int `json:"port"` // inside
	// HostPort is the machine's. In a create 0 is the same as Port where that is
	// free, and else one that is; a record has the port that was taken.
	HostPort int `json:"host_port"`
}

// PortState is how a Publish stands.
type PortState struct {
	Publish
	Open   bool
	Reason string // why it is not open while the sandbox runs
}

// Ports opens ports of sandboxes on the machine's loopback. Those of one sandbox
// are opened and closed with its turn held.
type Ports interface {
	// Claim opens all that a sandbox is to have, or fails: with Conflict where one
	// is taken, with Denied where the owner may have none, or not that one. Who
	// connects waits until it is served.
	Claim(ctx context.Context, owner string, want []Publish) (PortClaim, error)
	// Open opens the ports of a sandbox that has had them before. Its error says
	// which could not be, for a user to read: those are tried again until Close.
	Open(ctx context.Context, sb *Sandbox) error
	// Close closes the ports of a sandbox, and what goes through them. One without
	// any is no error.
	Close(id string)
	// State is how each port of a sandbox stands that has any open, or to be opened.
	State(id string) []PortState
}

// PortClaim has ports that are open, for a sandbox that is being made.
type PortClaim interface {
	Ports() []Publish // each with its HostPort
	// Serve makes them a sandbox's.
	Serve(id string)
	// Release closes them, unless they were made a sandbox's.
	Release()
}

// noPorts opens none.
type noPorts struct{}

func (noPorts) Claim(_ context.Context, _ string, want []Publish) (PortClaim, error) {
	if len(want) > 0 {
		return nil, Errorf(Unsupported, "publish: ports can't be opened on this machine")
	}
	return noPorts{}, nil
}
func (noPorts) Open(context.Context, *Sandbox) error { return nil }
func (noPorts) Close(string)                         {}
func (noPorts) State(string) []PortState             { return nil }
func (noPorts) Ports() []Publish                     { return nil }
func (noPorts) Serve(string)                         {}
func (noPorts) Release()                             {}

// CheckPublish says what can't be of the ports that a sandbox is to have.
func CheckPublish(all []Publish) *Error {
	if len(all) > maxPublish {
		return Errorf(Invalid, "publish: more than %d ports", maxPublish)
	}
	for i, p := range all {
		if err := CheckPort(p.Port); err != nil {
			return err
		}
		if p.HostPort < 0 || p.HostPort > 65535 {
			return Errorf(Invalid, "port %d: there is no such port", p.HostPort).WithHint("from 1 to 65535, or 0 for one that is free")
		}
		if p.HostPort != 0 && slices.ContainsFunc(all[:i], func(o Publish) bool { return o.HostPort == p.HostPort }) {
			return Errorf(Invalid, "port %d of this machine: it can lead to one port alone", p.HostPort)
		}
		if slices.Contains(all[:i], p) {
			return Errorf(Invalid, "port %d: it is published twice", p.Port)
		}
	}
	return nil
}

// CheckPort says why a port inside can't be reached from outside.
func CheckPort(port int) *Error {
	switch {
	case port < 1 || port > 65535:
		return Errorf(Invalid, "port %d: there is no such port", port).WithHint("from 1 to 65535")
	case port == GuestPort:
		return Errorf(Invalid, "port %d: it is the guest agent's", port).WithHint("have the server inside listen on another")
	}
	return nil
}

// openPorts opens the ports of a sandbox that runs again, or that runs on.
func (l *lives) openPorts(ctx context.Context, sb *Sandbox) {
	if err := l.ports.Open(ctx, sb); err != nil {
		l.note(ctx, sb, EventError, "%s", userText(err))
	}
}

// Published is how a sandbox's ports on the machine stand: none while it does
// not run.
func (m *Manager) Published(id string) []PortState { return m.lives.ports.State(id) }
