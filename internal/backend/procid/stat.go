package procid

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Stat is what this package needs of a line of /proc/PID/stat.
type Stat struct {
	PID       int
	Comm      string // the command's name; it may hold spaces, newlines and parentheses
	State     byte   // 'R', 'S', 'Z' and so on
	PPID      int
	StartTime uint64 // clock ticks since boot
}

// Fields of /proc/PID/stat after the command's name, counted from the state.
const (
	fieldState     = 0
	fieldPPID      = 1
	fieldStartTime = 19
)

// maxStat bounds one line: 52 numbers of at most 20 digits and a short name.
const maxStat = 4096

var errStat = errors.New("malformed process stat")

// ParseStat reads the line of /proc/PID/stat. The command's name is whatever
// its process chose and may imitate the fields that follow, so it ends at the
// last parenthesis of the line: no later field can hold one.
func ParseStat(line []byte) (Stat, error) {
	if len(line) > maxStat {
		return Stat{}, fmt.Errorf("%w: %d bytes", errStat, len(line))
	}
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 2 || end < open || line[open-1] != ' ' {
		return Stat{}, fmt.Errorf("%w: no command name", errStat)
	}
	s := Stat{Comm: string(line[open+1 : end])}
	var err error
	if s.PID, err = parsePID(line[:open-1]); err != nil || s.PID == 0 {
		return Stat{}, fmt.Errorf("%w: process number", errStat)
	}
	f := bytes.Fields(line[end+1:])
	if len(f) <= fieldStartTime || len(f[fieldState]) != 1 {
		return Stat{}, fmt.Errorf("%w: %d fields after the name", errStat, len(f))
	}
	if s.State = f[fieldState][0]; !isLetter(s.State) {
		return Stat{}, fmt.Errorf("%w: state", errStat)
	}
	if s.PPID, err = parsePID(f[fieldPPID]); err != nil {
		return Stat{}, fmt.Errorf("%w: parent", errStat)
	}
	if s.StartTime, err = strconv.ParseUint(string(f[fieldStartTime]), 10, 64); err != nil {
		return Stat{}, fmt.Errorf("%w: start time", errStat)
	}
	return s, nil
}

func isLetter(c byte) bool { return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' }

func parsePID(b []byte) (int, error) {
	n, err := strconv.ParseUint(string(b), 10, 31)
	return int(n), err
}
