package cli

import (
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// allowBuild begins a daemon's hint for a build that was refused hosts; flags follow,
// fit to be pasted. The daemon does not know the rest of what was typed.
const allowBuild = "to allow: carboy template build "

// typedBuild makes the hint of a build that failed the command that was typed, with the
// flags that the hint adds. Any other hint stays as it is.
func typedBuild(hint string, typed []string) string {
	flags, ok := strings.CutPrefix(hint, allowBuild)
	at := slices.Index(typed, "build") + 1
	if !ok || at == 0 {
		return hint
	}
	words := []string{"carboy"}
	for _, w := range typed[:at] {
		words = append(words, shell.Word(w))
	}
	words = append(words, flags)
	for _, w := range withoutNetwork(typed[at:]) {
		words = append(words, shell.Word(w))
	}
	return "to allow: " + strings.Join(words, " ")
}

// withoutNetwork leaves out --network off, which can't go with --allow.
func withoutNetwork(args []string) []string {
	var left []string
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--network="+sandbox.NetworkOff:
		case args[i] == "--network" && i+1 < len(args) && args[i+1] == sandbox.NetworkOff:
			i++
		default:
			left = append(left, args[i])
		}
	}
	return left
}
