package approval

import "testing"

// TestLife goes through every state and event: what is let go comes from a question
// that was open, and from a person's word alone; what is over stays over.
func TestLife(t *testing.T) {
	for _, s := range States {
		for _, e := range Events {
			next, ok := s.Next(e)
			switch {
			case !ok && next != "":
				t.Errorf("%s has no %s, and becomes %q by it", s, e, next)
			case ok && s.Final():
				t.Errorf("%s is final, and becomes %s by %s", s, next, e)
			case ok && next.LetsGo() && (s != Asked || e != Allow && e != Grant):
				t.Errorf("%s becomes %s by %s", s, next, e)
			}
		}
	}
	for _, s := range []State{Allowed, Denied, Expired, Voided, Withdrawn, Ended} {
		if !s.Final() {
			t.Errorf("%s is not final", s)
		}
	}
	for _, e := range Events { // an open question ends by each
		if next, ok := Asked.Next(e); !ok || next == Asked {
			t.Errorf("an open question: %s leads to %q", e, next)
		}
	}
}
