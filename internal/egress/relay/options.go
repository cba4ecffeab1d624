package relay

import (
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// How long nothing may pass, where Options say nothing else.
const (
	DefaultIdle    = time.Hour   // of a stream: a shell or a database session may be still for long
	defaultUDPIdle = time.Minute // of a flow of datagrams, which has no other end
)

// Options bound a relay. The zero value bounds its idle time alone.
type Options struct {
	// Idle ends a relay that carried nothing, either way, for so long. 0 is the
	// default; below 0 there is no bound.
	Idle time.Duration
	// Limits: RequestBytes bounds what is sent, ResponseBytes what is received.
	// The others are not looked at.
	Limits policy.Limits
	// Account is what the rule may use up in all, and has; nil: no bound.
	Account *Account
	// Head is written upstream before anything else, and counts as sent: bytes
	// of the guest's that were read to look at them. For streams.
	Head []byte
	// Watch sees each piece before it is passed on: sent is true for those of
	// the guest. Its error ends the relay, and the piece goes nowhere. It is
	// called by two goroutines, and may not keep the bytes. nil: nobody looks.
	// For streams.
	Watch func(sent bool, p []byte) error
	// Count holds the bytes of a relay that is still open; nil: nobody asks.
	Count *Count
}

// Count is how many bytes went which way, as of now.
type Count struct {
	Sent     atomic.Int64 // by the guest
	Received atomic.Int64
}

// End says why a relay ended.
type End string

// The ends.
const (
	EndClosed  End = "closed"  // both sides had said all
	EndIdle    End = "idle"    // nothing passed for too long
	EndLimit   End = "limit"   // a limit of bytes was reached
	EndCut     End = "cut"     // the context ended; Err is its cause
	EndWatch   End = "watch"   // Watch refused; Err is its error
	EndBroken  End = "broken"  // a connection failed; Err says how
	EndRefused End = "refused" // upstream could not be dialled; Err says why
)

// Result is what a relay did.
type Result struct {
	Sent     int64 // bytes that were passed on upstream
	Received int64 // bytes that were passed on to the guest
	Dropped  int   // datagrams that were too large to pass on
	End      End
	Err      error // with EndCut, EndWatch, EndBroken and EndRefused
}

// limit is an Options limit as a number to compare with.
func limit(n int64) int64 {
	if n <= 0 || weak.On(weak.NetLimitsOff) {
		return 1<<63 - 1
	}
	return n
}
