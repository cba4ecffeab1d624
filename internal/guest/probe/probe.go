// Package probe finds out what a sandbox's network lets commands do, by doing
// it: what was promised to be refused must be, and the gate must answer.
//
// The sockets are opened with a command's own rights, by whatever function is
// given for that, and waited for all at once, by one thread and without
// sleeping: a probe lasts as long as its slowest attempt. Only what came back
// counts as open: no answer until the time is over is none. Sockets of the
// third kind, whose packets a program writes itself, must not even be opened.
//
// A probe resolves no name, and follows no answer.
package probe

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Act runs a function with the rights of a command. See package jail.
type Act func(f func()) error

// Run makes all attempts of a probe that Check accepts. Its error says that
// they could not be made; what they found out is in the answer.
func Run(p api.Probe, act Act) (api.ProbeAnswer, error) {
	if err := check(p); err != nil {
		return api.ProbeAnswer{}, err
	}
	all := make([]*attempt, len(p.Attempts))
	for i, a := range p.Attempts {
		to, err := parse(a)
		if err != nil {
			return api.ProbeAnswer{}, err
		}
		all[i] = &attempt{Attempt: a, to: to, fd: -1}
	}
	defer func() {
		for _, a := range all {
			a.close()
		}
	}()
	deadline := time.Now().Add(time.Duration(p.TimeoutMS) * time.Millisecond)
	err := act(func() {
		for _, a := range all {
			a.begin()
		}
	})
	if err != nil {
		return api.ProbeAnswer{}, fmt.Errorf("probe as a command: %w", err)
	}
	if err := wait(all, deadline); err != nil {
		return api.ProbeAnswer{}, fmt.Errorf("probe: %w", err)
	}
	out := api.ProbeAnswer{Results: make([]api.ProbeResult, len(all))}
	for i, a := range all {
		out.Results[i] = a.result()
	}
	return out, nil
}

// wait goes on with each attempt as its socket is ready, until all have ended
// or the time is over. What has come by then counts, though this thread was
// too late to look.
func wait(all []*attempt, deadline time.Time) error {
	for {
		var ready []unix.PollFd
		var whose []*attempt
		for _, a := range all {
			if a.outcome == "" {
				ready = append(ready, unix.PollFd{Fd: int32(a.fd), Events: a.events})
				whose = append(whose, a)
			}
		}
		if len(ready) == 0 {
			return nil
		}
		left := max(0, time.Until(deadline))
		ts := unix.NsecToTimespec(left.Nanoseconds())
		if _, err := unix.Ppoll(ready, &ts, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for i, r := range ready {
			if r.Revents != 0 {
				whose[i].goOn()
			}
			if left == 0 && whose[i].outcome == "" {
				whose[i].late()
			}
		}
	}
}

// attempt is one that is being made.
type attempt struct {
	api.Attempt
	to        netip.AddrPort
	fd        int
	events    int16 // what is waited for
	connected bool
	got       []byte // of the answer, as much as is expected
	answered  bool
	began     time.Time
	took      time.Duration
	outcome   string // empty: it goes on
}

func (a *attempt) close() {
	if a.fd >= 0 {
		unix.Close(a.fd)
		a.fd = -1
	}
}

func (a *attempt) end(outcome string) {
	a.outcome, a.took = outcome, time.Since(a.began)
	a.close()
}

// late ends an attempt whose time is over.
func (a *attempt) late() {
	switch {
	case a.answered:
		a.end(api.OutcomeAnswered)
	case a.connected && a.Network == api.TCP:
		a.end(api.OutcomeConnected)
	default:
		a.end(api.OutcomeTimeout)
	}
}

// fail ends an attempt by an error of the kernel's.
func (a *attempt) fail(err error) {
	switch {
	case a.answered:
		a.end(api.OutcomeAnswered)
	case a.connected && a.Network == api.TCP:
		a.end(api.OutcomeConnected)
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET):
		a.end(api.OutcomeRefused)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		a.end(api.OutcomeDenied)
	case errors.Is(err, unix.ETIMEDOUT):
		a.end(api.OutcomeTimeout)
	default: // no route, no address to come from, no such family
		a.end(api.OutcomeUnreachable)
	}
}

func (a *attempt) result() api.ProbeResult {
	open := a.outcome == api.OutcomeConnected || a.outcome == api.OutcomeAnswered
	r := api.ProbeResult{Name: a.Name, Outcome: a.outcome, Micros: a.took.Microseconds(), OK: !open}
	if a.Want == api.WantOpen {
		r.OK = open && (len(a.Send) == 0 || a.answered && a.expected())
	}
	if weak.On(weak.NetProbeBlind) {
		r.OK = true
	}
	return r
}

// expected reports whether the answer begins as it should.
func (a *attempt) expected() bool { return string(a.got) == string(a.Expect) }
