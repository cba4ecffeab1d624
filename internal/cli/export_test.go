package cli

// What the tests outside this package look at from inside.
var (
	EditDistance = editDistance
	Nearest      = nearest
	SplitWords   = splitWords
	RefusedText  = refusedText
	Proposable   = proposable
)
