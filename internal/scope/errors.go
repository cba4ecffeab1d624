package scope

import "fmt"

// Error is what is wrong with a scope, in words for who asked for it.
type Error struct{ Msg string }

// Error is what is wrong.
func (e *Error) Error() string { return e.Msg }

func errorf(format string, args ...any) error { return &Error{Msg: fmt.Sprintf(format, args...)} }

// Refusal is why a rule is not within a scope.
type Refusal struct {
	Rule Rule   // that was asked for
	Why  string // what stands in its way: "it may only be read there"
	// Nearest is a rule that would be within; its target is empty where there is none.
	Nearest Rule
}

// Hint says what may be asked for instead; "" where nothing is near.
func (r *Refusal) Hint() string {
	if r.Nearest.Target == "" {
		return ""
	}
	return "the nearest that would be within is " + r.Nearest.String()
}
