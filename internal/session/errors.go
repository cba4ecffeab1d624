package session

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

// tidied is failure for what may have gone well.
func tidied(err error, key, doing string) error {
	if err == nil {
		return nil
	}
	return failure(err, key, doing)
}

// failure makes err one that a user may read: what is an Error stays one, an
// interruption says so, and the text of anything else is for the log.
func failure(err error, key, doing string) error {
	if _, ok := errors.AsType[*sandbox.Error](err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fault.Because(err, sandbox.Unavailable, "session %s: interrupted while trying to %s", shown(key), doing).WithHint("try again")
	}
	return fault.Because(err, sandbox.Internal, "session %s: could not %s", shown(key), doing).WithHint(sandbox.LogHint)
}

const maxShown = 100 // bytes of a key in a text

// shown is a key as texts have it: cut, and quoted where it is not plain.
func shown(key string) string {
	s := key
	if len(s) > maxShown {
		for s = s[:maxShown]; len(s) > 0 && !utf8.ValidString(s); {
			s = s[:len(s)-1]
		}
		s += "..."
	}
	if q := fmt.Sprintf("%q", s); q != `"`+s+`"` {
		return q
	}
	return s
}
