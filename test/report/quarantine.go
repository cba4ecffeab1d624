package main

import "strings"

// held is a test that runs and is told of, and doesn't count, with all its subtests.
type held struct {
	pkg, test string // as go test has it, below the module
	since     string // a date
	why       string
}

// mostHeld is how many may be in quarantine at a time.
const mostHeld = 10

// quarantine is for tests that are red for a reason that is known and not yet mended.
var quarantine = []held{}

func inQuarantine(q []held, pkg, test string) bool {
	for _, h := range q {
		if h.pkg == pkg && (h.test == test || strings.HasPrefix(test, h.test+"/")) {
			return true
		}
	}
	return false
}
