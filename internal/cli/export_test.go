package cli

import "github.com/carboy-sandbox/carboy/internal/cli/exit"

// What the tests outside this package look at from inside.
var (
	EditDistance = editDistance
	Nearest      = nearest
	ExitOf       = exit.Of
	ExitCode     = exit.Code
	SplitWords   = splitWords
	RefusedText  = refusedText
	Proposable   = proposable
)
