package cli

import (
	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
)

// What the tests outside this package look at from inside.
var (
	EditDistance   = editDistance
	Nearest        = nearest
	ExitOf         = exitOf
	ExitCode       = exitCode
	CredentialsErr = credentialsError
	SplitWords     = splitWords
	RefusedText    = refusedText
	Proposable     = proposable
)

type (
	LineCounter = lineCounter
)

// Place is what parsePlace makes of an argument.
func Place(s string) (name, path string, tree, dir bool) {
	p := parsePlace(s)
	return p.name, p.path, p.tree, p.dir
}

// Counts are what a LineCounter counted.
func (c *LineCounter) Counts() (added, removed int) { return c.added, c.removed }

// Frame is what a terminal of that size shows once all of news came.
func Frame(cols, rows uint32, news ...api.ImageProgress) []string {
	var l layerList
	for _, p := range news {
		l.put(p)
	}
	return l.frame(console.Size{Cols: cols, Rows: rows})
}
