package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/egress/link"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// line is who looks after what a gate asks, in these tests.
type line struct {
	mu   sync.Mutex
	seen approval.Snapshot
	lost int
}

func (l *line) Seen(s approval.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = s
}

func (l *line) Lost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = approval.Snapshot{}
	l.lost++
}

func (l *line) open() []approval.Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen.Open
}

// asks waits for n questions.
func (l *line) asks(t *testing.T, n int) []approval.Held {
	t.Helper()
	until(t, fmt.Sprintf("%d questions", n), func() bool { return len(l.open()) == n })
	return l.open()
}

// asking is a policy that has connections to an echo asked about.
func asking(timeout string) *policy.Policy {
	p := tcpTo(worldA, 7000)
	p.Rules[0].Action, p.Ask.Timeout = policy.ActionAsk, timeout
	return p
}

// attended is a gate whose questions l sees.
func attended(t *testing.T, p *policy.Policy) (*watched, *line) {
	t.Helper()
	w, l := newWatched(t, p), new(line)
	w.g.opts.Session, w.g.opts.Attend = "one", func(*sandbox.Sandbox) Line { return l }
	return w.open(), l
}

func (w *watched) answer(h approval.Held, e approval.Event) error {
	return w.g.Answer(w.t.Context(), w.sb.ID, approval.Answer{ID: h.ID, Question: h.Question, Event: e})
}

// opens connects from inside, and says something, once there is an answer.
func (w *watched) opens() <-chan error {
	done := make(chan error, 1)
	c, err := w.dial("tcp", worldA+":7000")
	if err != nil {
		done <- err
		return done
	}
	go func() { done <- echoes(c) }()
	return done
}

func TestAskedConnection(t *testing.T) {
	echoAt(t, worldA+":7000")
	w, l := attended(t, asking("20s"))
	first := w.opens()
	h := l.asks(t, 1)[0]
	if q := h.Question; q.What() != "tcp://"+worldA+":7000" || q.Rule != "echo" {
		t.Errorf("asked: %+v", q)
	}
	if err := w.answer(h, approval.Allow); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Errorf("allowed: %v", err)
	}
	l.asks(t, 0)
	second := w.opens()
	if err := w.answer(l.asks(t, 1)[0], approval.Deny); err != nil {
		t.Fatal(err)
	}
	if err := <-second; !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("denied: %v, want a reset", err)
	}
	if err := w.answer(h, approval.Allow); err == nil {
		t.Error("an answer to what is over was taken")
	}
}

// A policy that changes cuts what a person had allowed, and has what still waits asked anew:
// an answer to what was asked before is none. What it denies is refused, and what it allows goes on.
func TestAskedConnectionIsCut(t *testing.T) {
	echoAt(t, worldA+":7000")
	w, l := attended(t, asking("20s"))
	c, err := w.dial("tcp", worldA+":7000")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.answer(l.asks(t, 1)[0], approval.Allow); err != nil {
		t.Fatal(err)
	}
	if err := echoes(c); err != nil {
		t.Fatal(err)
	}
	if err := w.g.Set(t.Context(), w.sb); err != nil { // the same once more, as with a new secret
		t.Fatal(err)
	}
	if err := echoes(c); err != nil {
		t.Fatalf("told the same policy again: %v", err)
	}
	l.asks(t, 0) // the first is seen to be over, or it would be taken for the next
	held := w.opens()
	before := l.asks(t, 1)[0]
	w.turns(asking("21s"))
	if err := echoes(c); err == nil {
		t.Error("what was allowed under another policy goes on")
	}
	if err := w.answer(before, approval.Allow); err == nil {
		t.Error("an answer under another policy was taken")
	}
	until(t, "it is asked anew", func() bool { h := l.open(); return len(h) == 1 && h[0].ID != before.ID })
	select {
	case err := <-held:
		t.Fatalf("what waited did not wait on: %v", err)
	default:
	}
	if err := w.answer(l.open()[0], approval.Allow); err != nil {
		t.Fatal(err)
	}
	if err := <-held; err != nil {
		t.Errorf("allowed under the new policy: %v", err)
	}
	l.asks(t, 0)
	held = w.opens()
	l.asks(t, 1)
	w.turns(tcpTo(worldA, 7000))
	if err := <-held; err != nil {
		t.Errorf("a rule allows it by now: %v", err)
	}
	w.turns(asking("20s"))
	l.asks(t, 0)
	held = w.opens()
	l.asks(t, 1)
	bounded := tcpTo(worldA, 7000)
	bounded.Rules[0].Limits.Bytes = 1
	w.turns(bounded)
	if err := <-held; err == nil {
		t.Error("the new limits of the same rule don't hold")
	}
	w.turns(asking("20s"))
	l.asks(t, 0)
	held = w.opens()
	l.asks(t, 1)
	w.turns(tcpTo(worldA, 7001))
	if err := <-held; err == nil {
		t.Error("what is denied by now goes on")
	}
}

// turns has another policy hold.
func (w *watched) turns(p *policy.Policy) {
	w.t.Helper()
	w.sb.Spec.Policy = p
	if err := w.g.Set(w.t.Context(), w.sb); err != nil {
		w.t.Fatal(err)
	}
}

// A gate that dies takes what it asked along, and one that comes asks anew.
func TestAskingGateIsKilled(t *testing.T) {
	echoAt(t, worldA+":7000")
	w, l := attended(t, asking("20s"))
	w.opens()
	h := l.asks(t, 1)[0]
	w.kill()
	until(t, "the line is lost", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.lost == 1 })
	w.serves()
	if err := w.answer(h, approval.Allow); err == nil {
		t.Error("the next gate took an answer to what it was not asked")
	}
}

// TestNothingInsideAnswers says to every port of the gate's, from inside, what the
// daemon says to let something go, knowing all that there is to know.
func TestNothingInsideAnswers(t *testing.T) {
	echoAt(t, worldA+":7000")
	w, l := attended(t, asking("600s"))
	held := w.opens()
	h := l.asks(t, 1)[0]
	body, err := json.Marshal(approval.Answer{ID: h.ID, Question: h.Question, Event: approval.Allow})
	if err != nil {
		t.Fatal(err)
	}
	ports := []int{link.PortProxy, 3000, 8080, 49982, 49983, 49999}
	for p := 1; p < 128; p++ {
		ports = append(ports, p)
	}
	for _, port := range ports {
		sayInside(w, net.JoinHostPort(link.Gate4.String(), strconv.Itoa(port)), body)
	}
	select {
	case err := <-held:
		t.Fatalf("answered from inside: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := w.answer(h, approval.Allow); err != nil { // the same words, from the daemon
		t.Errorf("from outside: %v", err)
	}
	if err := <-held; err != nil {
		t.Errorf("allowed from outside: %v", err)
	}
}

// sayInside puts an answer to an address, from inside.
func sayInside(w *watched, to string, body []byte) {
	c, err := w.dialFor(patience.For(time.Second), "tcp", to)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience.For(time.Second)))
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, "http://gate.carboy.internal"+pathAnswer, bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	_ = req.Write(c)
	_, _ = io.Copy(io.Discard, c)
}

// Flows of datagrams that wait leave places for those that need nobody.
func TestAskedDatagramsAreBounded(t *testing.T) {
	p := asking("60s")
	p.Rules[0].Protocol = policy.ProtocolUDP
	w, l := attended(t, p)
	say := func() net.Conn {
		c, err := w.dial("udp", worldA+":7000")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for range maxUDPAsked {
		say()
	}
	until(t, "as many wait as may", func() bool { o := l.open(); return len(o) == maxUDPAsked })
	if _, err := say().Read(make([]byte, 8)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("one more: %v, want it refused", err)
	}
}
