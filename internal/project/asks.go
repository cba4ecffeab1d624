package project

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// maxShown bounds how much of one value is shown, in bytes.
const maxShown = 120

// Asks says, a line for each, what the file widens beyond the defaults of a sandbox:
// none of it is taken before the user has allowed it. What only narrows is not there.
func (f *File) Asks() []string {
	var asks []string
	ask := func(format string, args ...any) { asks = append(asks, term.Escape(fmt.Sprintf(format, args...))) }
	if f.Image.string != "" && f.Image.string != sandbox.DefaultImage {
		ask("the image %s, in place of this machine's programs", f.Image.string)
	}
	if f.Template.string != "" {
		ask("the template %s, in place of this machine's programs", f.Template.string)
	}
	if f.Isolation.string != "" && f.Isolation.string != sandbox.DefaultIsolation {
		ask("the isolation %s, where %s is the default", f.Isolation.string, sandbox.DefaultIsolation)
	}
	if f.User.string != "" && f.User.string != sandbox.DefaultUser {
		ask("commands run as %s", f.User.string)
	}
	if f.Network.string == sandbox.NetworkOn {
		ask("the network: all of the public internet")
	}
	for _, a := range f.Allow {
		ask("the network: %s", shown(a.string))
	}
	for _, s := range f.Secrets {
		ask("the secret %s, by its placeholder", s.string)
	}
	f.askLimits(ask)
	for _, c := range f.Caches {
		ask("a cache for %s", c.string)
	}
	for _, v := range f.Volumes {
		ask("the volume %s", shown(v.string))
	}
	for _, p := range f.Ports {
		ask("the port %s, open on this machine's loopback", p.string)
	}
	for _, k := range slices.Sorted(maps.Keys(f.Env)) {
		ask("the variable %s=%s", k, shown(f.Env[k]))
	}
	return asks
}

func (f *File) askLimits(ask func(format string, args ...any)) {
	l := f.Limits
	if l.CPUs > sandbox.DefaultCPUs {
		ask("%s processors, where %g is the default", strconv.FormatFloat(l.CPUs, 'g', -1, 64), float64(sandbox.DefaultCPUs))
	}
	if l.PIDs > sandbox.DefaultPIDs {
		ask("%d processes, where %d is the default", l.PIDs, sandbox.DefaultPIDs)
	}
	for _, s := range []struct {
		what string
		n    size
		def  int64
	}{{"memory", l.Memory, sandbox.DefaultMemory}, {"disk", l.Disk, sandbox.DefaultDisk}} {
		if int64(s.n) > s.def {
			ask("%s of %s, where %s is the default", s.what, term.FormatSize(int64(s.n)), term.FormatSize(s.def))
		}
	}
}

func shown(s string) string {
	if len(s) > maxShown {
		return strings.ToValidUTF8(s[:maxShown], "") + fmt.Sprintf("… (%d bytes)", len(s))
	}
	return s
}

// A Line is one of what differs between two lists of asks.
type Line struct {
	Mark string // "+", "-" or " "
	Text string
}

// Differ puts what was allowed before beside what is asked for now.
func Differ(before, now []string) []Line {
	var lines []Line
	for _, n := range now {
		mark := "+"
		if slices.Contains(before, n) {
			mark = " "
		}
		lines = append(lines, Line{mark, n})
	}
	for _, b := range before {
		if !slices.Contains(now, b) {
			lines = append(lines, Line{"-", b})
		}
	}
	return lines
}
