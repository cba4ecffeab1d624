//go:build weakened

package weak

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// variable holds the weaknesses, with commas between.
const variable = "CARBOY_WEAKEN"

var seeded = strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ',' })

// Announce says on standard error what is missing.
func Announce() {
	fmt.Fprintln(os.Stderr, "carboy: THIS BINARY WAS BUILT TO BE WEAK, for tests:", strings.Join(seeded, ","))
}

// Suffix ends the version of a binary.
const Suffix = "-weakened"

// On reports whether w is seeded.
func On(w Weakness) bool { return slices.Contains(seeded, string(w)) }

// Environ is what a role that this process executes needs to be as weak.
func Environ() []string {
	if len(seeded) == 0 {
		return nil
	}
	return []string{variable + "=" + strings.Join(seeded, ",")}
}
