package probe_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/probe"
)

// directly has attempts made by the test itself.
func directly(f func()) error { f(); return nil }

// tcp listens, answers each connection with what answer returns, and closes.
// Where the machine has no such network, it returns "".
func tcp(t testing.TB, network string, answer func(got []byte) []byte) string {
	t.Helper()
	at := map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"}[network]
	ln, err := net.Listen(network, at)
	if err != nil && network == "tcp6" {
		t.Log(err)
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 1500)
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				for _, part := range bytes.SplitAfter(answer(buf[:n]), []byte("|")) {
					_, _ = c.Write(part)
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// udp answers each datagram; nil is no answer.
func udp(t testing.TB, answer func(got []byte) []byte) string {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if out := answer(buf[:n]); out != nil {
				_, _ = c.WriteTo(out, from)
			}
		}
	}()
	return c.LocalAddr().String()
}

// free is an address where nobody listens.
func free(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func echo(got []byte) []byte { return got }
func mute([]byte) []byte     { return nil }

func TestRun(t *testing.T) {
	open4, open6, closed := tcp(t, "tcp4", echo), tcp(t, "tcp6", echo), free(t)
	answers, silent := udp(t, echo), udp(t, mute)
	type test struct {
		name string
		api.Attempt
		ok      bool
		outcome string
	}
	tests := []test{
		{"tcp-wanted", api.Attempt{Network: "tcp", Address: open4, Want: "open"}, true, "connected"},
		{"tcp-not-wanted", api.Attempt{Network: "tcp", Address: open4, Want: "refused"}, false, "connected"},
		{"tcp6-wanted", api.Attempt{Network: "tcp", Address: open6, Want: "open"}, true, "connected"},
		{"tcp6-not-wanted", api.Attempt{Network: "tcp", Address: open6, Want: "refused"}, false, "connected"},
		{"tcp-mapped", api.Attempt{Network: "tcp", Address: "[::ffff:127.0.0.1]" + open4[strings.LastIndex(open4, ":"):], Want: "refused"}, false, "connected"},
		{"tcp-closed", api.Attempt{Network: "tcp", Address: closed, Want: "refused"}, true, "refused"},
		{"tcp-closed-but-wanted", api.Attempt{Network: "tcp", Address: closed, Want: "open"}, false, "refused"},
		{"tcp-answer", api.Attempt{Network: "tcp", Address: open4, Want: "open", Send: []byte("a|b|c"), Expect: []byte("a|b")}, true, "answered"},
		{"tcp-other-answer", api.Attempt{Network: "tcp", Address: open4, Want: "open", Send: []byte("abc"), Expect: []byte("xbc")}, false, "answered"},
		{"tcp-short-answer", api.Attempt{Network: "tcp", Address: open4, Want: "open", Send: []byte("abc"), Expect: []byte("abcd")}, false, "answered"},
		{"tcp-no-answer", api.Attempt{Network: "tcp", Address: tcp(t, "tcp4", mute), Want: "open", Send: []byte("abc")}, false, "connected"},
		{"tcp-connected-is-enough", api.Attempt{Network: "tcp", Address: tcp(t, "tcp4", mute), Want: "refused", Send: []byte("abc")}, false, "connected"},
		{"udp-wanted", api.Attempt{Network: "udp", Address: answers, Want: "open", Send: []byte("abc"), Expect: []byte("ab")}, true, "answered"},
		{"udp-other-answer", api.Attempt{Network: "udp", Address: answers, Want: "open", Send: []byte("abc"), Expect: []byte("x")}, false, "answered"},
		{"udp-not-wanted", api.Attempt{Network: "udp", Address: answers, Want: "refused", Send: []byte("abc")}, false, "answered"},
		{"udp-closed", api.Attempt{Network: "udp", Address: closed, Want: "refused", Send: []byte("abc")}, true, "refused"},
		{"udp-silent", api.Attempt{Network: "udp", Address: silent, Want: "refused", Send: []byte("abc")}, true, "timeout"},
		{"udp-silent-but-wanted", api.Attempt{Network: "udp", Address: silent, Want: "open", Send: []byte("abc")}, false, "timeout"},
	}
	// Those that answer have all the time that there is, and take none of it.
	answered, unanswered := api.Probe{TimeoutMS: api.MaxProbeMS}, api.Probe{TimeoutMS: 300}
	tests = slices.DeleteFunc(tests, func(tt test) bool { return tt.Address == "" })
	for _, tt := range tests {
		tt.Attempt.Name = tt.name
		p := &answered
		if tt.outcome == "timeout" {
			p = &unanswered
		}
		p.Attempts = append(p.Attempts, tt.Attempt)
	}
	began := time.Now()
	results := map[string]api.ProbeResult{}
	for _, p := range []api.Probe{answered, unanswered} {
		got, err := probe.Run(p, directly)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range got.Results {
			if r.Name != p.Attempts[i].Name {
				t.Errorf("result %d is %q's, want %q's", i, r.Name, p.Attempts[i].Name)
			}
			results[r.Name] = r
		}
	}
	took := time.Since(began)
	for _, tt := range tests {
		r := results[tt.name]
		if r.Name != tt.name || r.OK != tt.ok || r.Outcome != tt.outcome {
			t.Errorf("%s: got %+v, want %v, %s", tt.name, r, tt.ok, tt.outcome)
		}
		if r.Micros < 0 || r.Micros > took.Microseconds() {
			t.Errorf("%s: %d us of %s", tt.name, r.Micros, took)
		}
	}
}

// From where there is no network nothing is to be reached.
func TestNoRoute(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to leave the network")
	}
	p := api.Probe{TimeoutMS: api.MaxProbeMS, Attempts: []api.Attempt{
		{Name: "tcp", Network: "tcp", Address: "192.0.2.1:9", Want: "refused"},
		{Name: "udp", Network: "udp", Address: "[2001:db8::1]:9", Want: "refused", Send: []byte("a")},
	}}
	got, err := probe.Run(p, onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) }))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got.Results {
		if !r.OK || r.Outcome != "unreachable" {
			t.Errorf("got %+v", r)
		}
	}
}

// Sockets that make packets are denied to whom has no right to them, and
// opened for whom has.
func TestRaw(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give it up")
	}
	p := api.Probe{TimeoutMS: 300, Attempts: []api.Attempt{{Name: "raw", Network: "raw", Want: "refused"}}}
	got, err := probe.Run(p, directly)
	if err != nil || got.Results[0].OK || got.Results[0].Outcome != "connected" {
		t.Errorf("as root: %+v, %v", got, err)
	}
	got, err = probe.Run(p, asNobody)
	if err != nil || !got.Results[0].OK || got.Results[0].Outcome != "denied" {
		t.Errorf("as nobody: %+v, %v", got, err)
	}
}

// asNobody runs f on a thread of another user's.
var asNobody = onThread(func() error {
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
		return e
	}
	return nil
})

// onThread has attempts made by a thread that setup has changed, and that ends
// with them.
func onThread(setup func() error) probe.Act {
	return func(f func()) error {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlocked
			err := setup()
			if err == nil {
				f()
			}
			done <- err
		}()
		return <-done
	}
}

// An echo is answered where the kernel lets programs ask for one.
func TestICMP(t *testing.T) {
	p := api.Probe{TimeoutMS: api.MaxProbeMS}
	for _, addr := range []string{"127.0.0.1", "::1"} {
		p.Attempts = append(p.Attempts, api.Attempt{Name: addr, Network: "icmp", Address: addr, Want: "open"})
	}
	got, err := probe.Run(p, directly)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got.Results {
		switch r.Outcome {
		case "answered":
			if !r.OK {
				t.Errorf("got %+v", r)
			}
		case "denied", "unreachable":
			t.Logf("%s: %s on this machine", r.Name, r.Outcome)
		default:
			t.Errorf("got %+v", r)
		}
	}
}

// It waits no longer than its slowest attempt, and for all at once.
func TestParallel(t *testing.T) {
	silent := udp(t, mute)
	p := api.Probe{TimeoutMS: 100}
	for i := range api.MaxAttempts {
		p.Attempts = append(p.Attempts, api.Attempt{Name: string(rune('A' + i)), Network: "udp", Address: silent, Want: "refused", Send: []byte("a")})
	}
	var took []time.Duration
	var got api.ProbeAnswer
	one := time.Duration(api.MaxAttempts) * 50 * time.Millisecond // where they wait one after the other, twice that
	for len(took) == 0 || len(took) < 5 && slices.Min(took) > one {
		began := time.Now()
		var err error
		if got, err = probe.Run(p, directly); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	if slices.Min(took) > one {
		t.Errorf("%d attempts took %v", api.MaxAttempts, took)
	}
	if slices.ContainsFunc(got.Results, func(r api.ProbeResult) bool { return r.Outcome != "timeout" }) {
		t.Errorf("got %+v", got.Results)
	}
}

// What has come before anybody could look counts.
func TestLateLook(t *testing.T) {
	came, out := make(chan struct{}), []byte("abc")
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		defer close(came)
		if _, from, err := c.ReadFrom(make([]byte, 10)); err == nil {
			_, _ = c.WriteTo(out, from)
		}
	}()
	p := api.Probe{TimeoutMS: 20, Attempts: []api.Attempt{
		{Name: "a", Network: "udp", Address: c.LocalAddr().String(), Want: "open", Send: out, Expect: out},
	}}
	got, err := probe.Run(p, func(f func()) error {
		f()
		<-came
		<-time.After(2 * time.Duration(p.TimeoutMS) * time.Millisecond)
		return nil
	})
	if err != nil || got.Results[0].Outcome != "answered" || !got.Results[0].OK {
		t.Errorf("got %+v, %v", got, err)
	}
}

// No descriptor is left, and the error of who makes the sockets is returned.
func TestLeavesNothing(t *testing.T) {
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(names)
	}
	silent := udp(t, mute)
	p := api.Probe{TimeoutMS: 20, Attempts: []api.Attempt{
		{Name: "a", Network: "udp", Address: silent, Want: "refused", Send: []byte("a")},
		{Name: "b", Network: "tcp", Address: "192.0.2.1:9", Want: "refused"},
		{Name: "c", Network: "raw", Want: "refused"},
	}}
	before := count()
	failed := errors.New("no such thread")
	if _, err := probe.Run(p, func(f func()) error { f(); return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	if _, err := probe.Run(p, directly); err != nil {
		t.Error(err)
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
}

func TestDecodeRefuses(t *testing.T) {
	one := func(attempt string) string { return `{"timeout_ms":10,"attempts":[` + attempt + `]}` }
	good := `{"name":"a","network":"tcp","address":"192.0.0.1:53","want":"open"}`
	if _, err := probe.Decode(strings.NewReader(one(good))); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, text string }{
		{"empty", ""},
		{"no-attempts", `{"timeout_ms":10}`},
		{"no-time", `{"attempts":[` + good + `]}`},
		{"too-much-time", `{"timeout_ms":5001,"attempts":[` + good + `]}`},
		{"unknown-field", `{"timeout_ms":10,"user":"root","attempts":[` + good + `]}`},
		{"two-objects", one(good) + "{}"},
		{"same-name", one(good + "," + good)},
		{"too-many", one(strings.Repeat(good+",", api.MaxAttempts) + good)},
		{"no-name", one(`{"network":"tcp","address":"192.0.0.1:53","want":"open"}`)},
		{"a-host-name", one(`{"name":"a","network":"tcp","address":"localhost:53","want":"open"}`)},
		{"no-port", one(`{"name":"a","network":"tcp","address":"192.0.0.1","want":"open"}`)},
		{"port-zero", one(`{"name":"a","network":"tcp","address":"192.0.0.1:0","want":"open"}`)},
		{"zone", one(`{"name":"a","network":"tcp","address":"[fe80::1%eth0]:1","want":"open"}`)},
		{"no-want", one(`{"name":"a","network":"tcp","address":"192.0.0.1:53"}`)},
		{"other-network", one(`{"name":"a","network":"unix","address":"/s","want":"open"}`)},
		{"udp-without-words", one(`{"name":"a","network":"udp","address":"192.0.0.1:53","want":"open"}`)},
		{"expect-without-send", one(`{"name":"a","network":"tcp","address":"192.0.0.1:53","want":"open","expect":"AA=="}`)},
		{"icmp-with-port", one(`{"name":"a","network":"icmp","address":"192.0.0.1:53","want":"open"}`)},
		{"icmp-with-words", one(`{"name":"a","network":"icmp","address":"192.0.0.1","want":"open","send":"AA=="}`)},
		{"raw-with-address", one(`{"name":"a","network":"raw","address":"192.0.0.1","want":"open"}`)},
		{"too-much-to-send", one(`{"name":"a","network":"udp","address":"192.0.0.1:53","want":"open","send":"` + strings.Repeat("AAAA", 411) + `"}`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if p, err := probe.Decode(strings.NewReader(tt.text)); err == nil {
				t.Errorf("got %+v", p)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"timeout_ms":10,"attempts":[{"name":"a","network":"udp","address":"[::1]:53","want":"refused","send":"AA==","expect":"AA=="}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := probe.Decode(strings.NewReader(text))
		if err != nil {
			return
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := probe.Decode(bytes.NewReader(again)); err != nil || len(p.Attempts) > api.MaxAttempts {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func BenchmarkRun(b *testing.B) {
	open4, closed, answers := tcp(b, "tcp4", echo), free(b), udp(b, echo)
	p := api.Probe{TimeoutMS: 100, Attempts: []api.Attempt{
		{Name: "gate", Network: "udp", Address: answers, Want: "open", Send: []byte("a")},
		{Name: "gate-tcp", Network: "tcp", Address: open4, Want: "open"},
	}}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		p.Attempts = append(p.Attempts, api.Attempt{Name: name, Network: "tcp", Address: closed, Want: "refused"})
	}
	for b.Loop() {
		if _, err := probe.Run(p, directly); err != nil {
			b.Fatal(err)
		}
	}
}
