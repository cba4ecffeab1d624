package rpc

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/carboy-sandbox/carboy/api/langbot"
)

// Call asks the other side for an action, and decodes its answer's data into
// reply unless that is nil. about says for whom it is; nil: for no workspace. It
// waits as long as ctx allows, and its error then has ctx's. A *RemoteError is
// what the other side answered; one that is ErrClosed means that nobody knows
// what became of the action.
func (p *Peer) Call(ctx context.Context, action string, data any, about *langbot.Context, reply any) error {
	raw := json.RawMessage("{}")
	if data != nil {
		var err error
		if raw, err = Encode(data); err != nil {
			return fmt.Errorf("%s: encode: %w", action, err)
		}
	}
	answer := make(chan *langbot.Response, 1)
	seq, err := p.expect(answer)
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	defer p.forget(seq)
	sent := p.send(langbot.Request{SeqID: seq, Action: action, Data: raw, Context: about})
	for {
		select {
		case err := <-sent:
			if err != nil {
				return fmt.Errorf("%s: %w", action, err)
			}
			sent = nil // it can't be ready any more
		case r := <-answer:
			return take(action, r, reply)
		case <-ctx.Done():
			return fmt.Errorf("%s: no answer: %w", action, context.Cause(ctx))
		case <-p.done:
			select { // an answer that came before the end is one
			case r := <-answer:
				return take(action, r, reply)
			default:
			}
			return fmt.Errorf("%s: %w", action, p.ended())
		}
	}
}

// send sends a request that expect has counted. It goes on when a caller has
// given up, as a message that is cut off would end the connection of all.
func (p *Peer) send(r langbot.Request) <-chan error {
	sent := make(chan error, 1)
	go func() {
		defer p.active.Done()
		message, err := Encode(r)
		if err == nil {
			err = p.o.Conn.Send(p.ctx, message)
		}
		sent <- err
	}()
	return sent
}

func take(action string, r *langbot.Response, reply any) error {
	if r.Code != 0 {
		return &RemoteError{Action: action, Message: r.Message}
	}
	if reply == nil {
		return nil
	}
	if err := json.Unmarshal(r.Data, reply); err != nil {
		return fmt.Errorf("%s: the answer is not understood: %w", action, err)
	}
	return nil
}

// expect names a call, and says where its answer goes. Its sending is counted
// among what Run waits for.
func (p *Peer) expect(answer chan *langbot.Response) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	p.active.Add(1)
	p.seq++
	p.waiting[p.seq] = answer
	return p.seq, nil
}

func (p *Peer) forget(seq int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, seq)
}

func (p *Peer) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}
