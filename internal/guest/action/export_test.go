package action

import (
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
)

// Quicken has shorter waits than a sandbox has.
func (s *Server) Quicken() {
	s.pace = pace{header: 3 * time.Second, write: 300 * time.Millisecond, grace: 300 * time.Millisecond, again: 10 * time.Millisecond}
}

// Bounds, for tests of them.
const (
	MaxAtOnce   = maxAtOnce
	MaxShells   = maxShells
	MaxServices = maxServices
	MaxBoth     = maxOutput + maxTail
	MaxLog      = maxLog
	MaxFile     = maxFile
	MaxChars    = maxChars
	MaxSequence = maxSequence
	MaxIdle     = maxIdle
)

// ListedForTest has listings of so many entries, until what it returns is called. It returns
// how many there were, too.
func ListedForTest(most int) (was int, restore func()) {
	was = maxListed
	maxListed = most
	return was, func() { maxListed = was }
}

var (
	ReadHeader = readHeader
	Fit        = fit
)

// Parse says what is wrong with a request.
func Parse(raw, more []byte) error {
	_, err := parse(raw, more)
	return err
}

// Decode and Plain make text of what a shell wrote.
func Decode(raw []byte, limit int, final bool) (text string, used int, full bool) {
	c := decode(raw, limit, final)
	return c.text, c.used, c.full
}

func Plain(raw []byte, limit int, final bool) (text string, used int, full bool) {
	c := plain(raw, limit, final)
	return c.text, c.used, c.full
}

// ReadFrom makes the reply to a read of what a shell wrote.
func ReadFrom(out output, q *action.ReadShellRequest) *action.ReadShellReply { return readFrom(out, q) }

// Record is a service's log.
type Record struct{ r *record }

// NewRecord makes an empty one.
func NewRecord() Record { return Record{newRecord()} }

func (r Record) Add(p []byte)              { r.r.add(p) }
func (r Record) Last(n int) (string, bool) { return r.r.last(n) }
