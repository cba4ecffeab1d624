package request

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of what is written down of a request, so that no request pushes the
// records of others out.
const (
	maxWritten  = 400 // characters of a text
	maxEnvNames = 64
	maxEnvName  = 64 // characters
)

// Written is what is written down of a text: its first 400 characters.
func Written(s string) string { return firstOf(s, maxWritten) }

// EnvNames is what is written down of an environment: the names of the first 64
// variables, of each the first 64 characters, and how many more there are.
func EnvNames(env map[string]string) []string {
	names := slices.Sorted(maps.Keys(env))
	more := len(names) - maxEnvNames
	names = names[:min(len(names), maxEnvNames)]
	for i, name := range names {
		names[i] = firstOf(name, maxEnvName)
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("(and %d more)", more))
	}
	return names
}

// firstOf returns so many characters of s. What is none is replaced.
func firstOf(s string, most int) string {
	n := 0
	for i := range s {
		if n++; n > most {
			s = s[:i]
			break
		}
	}
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
