package main

import (
	"path"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// place is a path where nothing needs to be yet: beside what is new, most of
// the time.
func (s *sequence) place() string {
	if dirs := s.newDirs(); len(dirs) > 0 && s.rand.IntN(4) != 0 {
		return path.Join(pick(s.rand, dirs), s.fresh())
	}
	return path.Join(s.somewhere(), s.fresh())
}

// chooseFile writes to a file: one that is there, or another.
func (s *sequence) chooseFile() []facts.Step {
	p := s.place()
	if e := s.entry(); s.rand.IntN(3) == 0 && s.mayHarm(e) {
		p = e
	}
	switch s.rand.IntN(6) {
	case 0:
		return []facts.Step{{Op: "fill", B: p, N: 4 << 20}}
	case 1:
		return []facts.Step{{Op: "mkdir", B: p, N: 0o755}, {Op: "write", B: path.Join(p, s.fresh())}}
	case 2:
		return []facts.Step{{Op: "mknod", B: p, N: pick(s.rand, []uint64{0o010644, 0o140644, 0o020644, 0o060644, 0o100644})}}
	case 3:
		if s.mayHarm(p) {
			return []facts.Step{{Op: pick(s.rand, []string{"chmod", "chown", "setxattr"}), B: p, N: 0o777}}
		}
	}
	return []facts.Step{{Op: "write", B: p}}
}

// chooseName moves names about: an entry goes, and another thing comes to lie
// where it was.
func (s *sequence) chooseName() []facts.Step {
	p := s.entry()
	if !s.mayHarm(p) {
		return []facts.Step{s.other(s.place())}
	}
	switch s.rand.IntN(5) {
	case 0:
		return []facts.Step{{Op: "rename", A: p, B: s.place()}, s.other(p)}
	case 1:
		return []facts.Step{{Op: "rename", A: s.place(), B: p}}
	case 2:
		return []facts.Step{{Op: "link", A: p, B: s.place()}}
	case 3:
		return []facts.Step{{Op: "unlink", B: p}}
	}
	return []facts.Step{{Op: "unlink", B: p}, s.other(p)}
}

// other is a step that puts something at p. Links lead to the host's canaries
// or stay where they are: one that leads anywhere else could do harm where a
// wall does not hold.
func (s *sequence) other(p string) facts.Step {
	switch s.rand.IntN(6) {
	case 0:
		return facts.Step{Op: "write", B: p}
	case 1:
		return facts.Step{Op: "mkdir", B: p, N: 0o755}
	case 2:
		return facts.Step{Op: "bind", B: p}
	case 3:
		return facts.Step{Op: "symlink", A: pick(s.rand, []string{".", "..", s.fresh()}), B: p}
	}
	if to := pick(s.rand, s.Targets); to != "" {
		return facts.Step{Op: "symlink", A: to, B: p}
	}
	return facts.Step{Op: "link", A: s.entry(), B: p}
}

// chooseSocket listens or connects.
func (s *sequence) chooseSocket() []facts.Step {
	p := s.place()
	if e := s.entry(); s.rand.IntN(2) == 0 && s.mayHarm(e) {
		if s.rand.IntN(2) == 0 {
			return []facts.Step{{Op: "connect", B: e}}
		}
		return []facts.Step{{Op: "unlink", B: e}, {Op: "bind", B: e}}
	}
	return []facts.Step{{Op: "bind", B: p}}
}
