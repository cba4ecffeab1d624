package facts

import "fmt"

// Plan says which sequences of steps to make up and run, or which one to run
// again. What it carries of the host's can't be reached by its name.
type Plan struct {
	Seed    uint64        `json:"seed"`
	From    int           `json:"from"`    // number of the first sequence
	Millis  int64         `json:"millis"`  // no sequence is begun after that long
	Most    int           `json:"most"`    // no more sequences than this
	Targets []string      `json:"targets"` // host paths that links may lead to: the canaries
	Tokens  []string      `json:"tokens"`  // hex digests: see Digest
	Names   []string      `json:"names"`   // of what lies in control directories on the host
	Marker  string        `json:"marker"`  // is part of the names of what lies in the host's /tmp, /run, ...
	Replay  []Composition `json:"replay"`  // to run instead
}

// TokenSize is how many bytes at the start of a file are its token.
const TokenSize = 48

// Entry is how the process of a sequence comes to be.
type Entry struct {
	Flags uintptr `json:"flags"` // of clone
	Map   string  `json:"map"`   // of ids: to "root", to the "same" number, of "another" to root, or none
}

// Composition is a sequence of steps.
type Composition struct {
	Number int      `json:"number"`
	Entry  Entry    `json:"entry"`
	Steps  []Step   `json:"steps"`
	Finds  []string `json:"finds,omitempty"`
	// Error says why it did not come to its end.
	Error string `json:"error,omitempty"`
}

// Step is one system call, or a few that belong together.
type Step struct {
	Op   string `json:"op"`
	A    string `json:"a,omitempty"` // what is used: a source, a type of namespace
	B    string `json:"b,omitempty"` // where: a target
	Kind string `json:"kind,omitempty"`
	Data string `json:"data,omitempty"`
	N    uint64 `json:"n,omitempty"`
	// Got is how it ended: empty for well.
	Got string `json:"got,omitempty"`
}

// String is the step as a person reads it.
func (s Step) String() string {
	text := s.Op
	for _, p := range []string{s.Kind, s.A, s.B, s.Data} {
		if p != "" {
			text += fmt.Sprintf(" %q", p)
		}
	}
	if s.N != 0 {
		text += fmt.Sprintf(" %#x", s.N)
	}
	if s.Got != "" {
		text += ": " + s.Got
	}
	return text
}
