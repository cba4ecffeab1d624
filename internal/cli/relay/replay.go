package relay

import (
	"regexp"
	"sync"
)

// queries are what a program writes to ask a terminal: who it is, where the cursor is, what
// it can do and how it is set.
var queries = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\x1b\[[>=?]?[0-9;]*[cnx]` + // device attributes, status, parameters
		`|\x1b\[>[0-9;]*q` + // version
		`|\x1b\[\??[0-9;]*\$p` + // modes
		`|\x1b\[[0-9;]*t` + // window
		`|\x1b\[\?[0-9;]*u` + // keyboard
		`|\x1bP[+$]q[^\x1b\x07]*(?:\x1b\\|\x07)` + // settings
		`|\x1b\][0-9;]*;[^\x1b\x07]*\?(?:\x1b\\|\x07)` + // colours and the clipboard
		`|\x1bZ|\x05`)
})

// replayed is what was written before anybody was attached, as it is shown now: without what
// asks the terminal something, whose answer would be typed into what runs by now.
func replayed(out []byte) []byte { return queries().ReplaceAll(out, nil) }
