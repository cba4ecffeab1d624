package inject

import "net/http"

// What this package refuses for. Records and the gate's answers carry it.
const (
	CodeMisplaced   = "placeholder_misplaced" // a placeholder where no rule wants it
	CodeForeign     = "foreign_credential"    // a credential that the gate did not supply
	CodeUnavailable = "secret_unavailable"    // a value could not be had
	CodeEchoed      = "secret_echoed"         // an answer holds a value
	CodeRange       = "range_refused"         // a part of an answer would hide a value from the search
	CodeTrace       = "trace_refused"         // a request that asks for its own headers back
	CodeEncoding    = "encoding_refused"      // a body that can't be read, and so not searched
	CodeLimit       = "limit_reached"         // a body that is too large to be read at once
)

// Refusal is why a message does not go on. As an error it is what the readers
// and writers of this package fail with. Nothing in it holds a value, a
// placeholder or a header.
type Refusal struct {
	Code   string
	Reason string // for people: lower case, one line
	Hint   string // what to do instead, or ""
	What   string // what a person was asked, or ""
	Status int    // of the answer, where one can still be given
}

// Error returns the reason.
func (r *Refusal) Error() string { return r.Reason }

func misplaced(where string) *Refusal {
	return &Refusal{
		Code: CodeMisplaced, Status: http.StatusForbidden,
		Reason: "a secret's placeholder is in " + where + ", where no rule of the policy puts it",
		Hint:   "send it only where the policy's rule for this host names it",
	}
}

// inBody is misplaced for what a rule may let through.
func inBody(where string) *Refusal {
	why := misplaced(where)
	why.Hint += "; \"placeholders: pass\" in the rule lets them through in bodies, as they are"
	return why
}

func foreign(where string) *Refusal {
	return &Refusal{
		Code: CodeForeign, Status: http.StatusForbidden,
		Reason: where + " holds a credential that the gate did not supply",
		Hint:   "leave it out, or send the placeholder: the gate puts the secret in; a rule with \"auth: guest\" lets others through",
	}
}

func unavailable(name, why string) *Refusal {
	return &Refusal{
		Code: CodeUnavailable, Status: http.StatusServiceUnavailable,
		Reason: "secret " + name + " " + why,
		Hint:   "on the host: carboy secret rotate " + name,
	}
}

func echoed(where string) *Refusal {
	return &Refusal{
		Code: CodeEchoed, Status: http.StatusBadGateway,
		Reason: where + " holds the value of a secret",
	}
}

func unreadable(status int, what string) *Refusal {
	return &Refusal{
		Code: CodeEncoding, Status: status,
		Reason: what + " can't be read, and so not searched for secrets",
		Hint:   "send it without that encoding",
	}
}

func tooLarge(what string) *Refusal {
	return &Refusal{
		Code: CodeLimit, Status: http.StatusRequestEntityTooLarge,
		Reason: what + " is too large to be searched for secrets",
		Hint:   "send less at once, or without Content-Encoding",
	}
}
