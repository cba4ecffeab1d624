package cli

import (
	"fmt"
	"strconv"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/term"
)

// limitText tells of the limits of a sandbox. A nil one knows no figures.
type limitText struct {
	limits api.Limits
	flags  bool // the flags that set them were on this command line
}

// of says that the command ran into the limit name.
func (t *limitText) of(name string) string {
	switch name {
	case "pids":
		return "the command ran into the limit of processes" + t.figure("pids", func(l api.Limits) string { return strconv.FormatInt(l.PIDs, 10) })
	case "memory":
		return "a process of the command was killed because memory ran out" + t.memory()
	case "disk":
		return "the command ran into the limit of disk space" + t.figure("disk", func(l api.Limits) string { return term.FormatSize(l.Disk) })
	case "inodes":
		return "the command ran into the limit of files" + t.figure("", func(l api.Limits) string { return strconv.FormatInt(l.Inodes, 10) })
	}
	return "the command ran into a limit: " + name
}

// memory is what follows a message that memory ran out.
func (t *limitText) memory() string {
	return t.figure("memory", func(l api.Limits) string { return term.FormatSize(l.Memory) })
}

func (t *limitText) figure(flag string, of func(api.Limits) string) string {
	switch {
	case t == nil:
		return ""
	case t.flags && flag != "":
		return fmt.Sprintf(" (%s; --%s raises it)", of(t.limits), flag)
	}
	return fmt.Sprintf(" (%s)", of(t.limits))
}
