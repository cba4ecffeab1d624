package cli_test

import (
	"context"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
)

// fakeStalls are commands of a fake agent that means harm: it sends the same
// event for ever, takes no signal, and says that there is more to come.
var fakeStalls = map[string]struct {
	event *guestv1.Event
	every time.Duration
}{
	"fake-empty":     {event: &guestv1.Event{}},
	"fake-keepalive": {event: &guestv1.Event{Event: &guestv1.Event_Keepalive{}}},
	"fake-started":   {event: &guestv1.Event{Event: &guestv1.Event_Started_{Started: &guestv1.Event_Started{}}}},
	"fake-no-output": {event: &guestv1.Event{Event: &guestv1.Event_Output_{Output: &guestv1.Event_Output{Stream: 1}}}},
	"fake-unknown":   {event: &guestv1.Event{Event: &guestv1.Event_Output_{Output: &guestv1.Event_Output{Stream: 7, Data: []byte("x")}}}},
	"fake-dropped":   {event: &guestv1.Event{Event: &guestv1.Event_Dropped_{Dropped: &guestv1.Event_Dropped{Stream: 1, To: 1}}}},
	"fake-slow":      {event: &guestv1.Event{}, every: 200 * time.Millisecond},
}

func (p *fakeProc) stalls() bool {
	_, ok := fakeStalls[p.command.GetArgv()[0]]
	return ok
}

// tell streams a command's events.
func (g *fakeGuest) tell(ctx context.Context, p *fakeProc, r *guestv1.FollowRequest, s *connect.ServerStream[guestv1.Event]) error {
	if !p.stalls() {
		return p.follow(ctx, r, s)
	}
	select {
	case g.started <- struct{}{}:
	default: // nobody waits for it
	}
	f := fakeStalls[p.command.GetArgv()[0]]
	for ctx.Err() == nil {
		if err := s.Send(f.event); err != nil {
			return err
		}
		if f.every == 0 {
			continue
		}
		select {
		case <-time.After(f.every):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
