package netlog

import "github.com/carboy-sandbox/carboy/api"

// Verdict is what became of what a sandbox tried.
type Verdict = string

// The verdicts.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
)

// Record is one line of a sandbox's record: one DNS question, connection,
// request, or run of refused packets. The Writer sets its number, without gaps,
// and its sandbox.
type Record = api.NetRecord
