package jail

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/mountinfo"
)

// mountPoint is a line of /proc/PID/mountinfo.
type mountPoint struct {
	path     string
	readOnly bool
	flags    uintptr // those that a remount has to repeat
}

// mountFlags are what a remount takes away unless it names them.
var mountFlags = map[string]uintptr{
	"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
	"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
}

// mountsOf lists what a process sees mounted: of several mounts at one place
// the topmost.
func mountsOf(pid string) ([]mountPoint, error) {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("look at the mounts: %w", err)
	}
	return parseMounts(text)
}

func parseMounts(text []byte) ([]mountPoint, error) {
	var list []mountPoint
	at := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line, ok := mountinfo.Parse(lines.Text())
		if !ok || !strings.HasPrefix(line.Point, "/") {
			return nil, fmt.Errorf("look at the mounts: %.80q", lines.Text())
		}
		m := mountPoint{path: line.Point}
		for _, opt := range line.Options {
			m.readOnly = m.readOnly || opt == "ro"
			m.flags |= mountFlags[opt]
		}
		if i, ok := at[m.path]; ok {
			list[i] = m
			continue
		}
		at[m.path] = len(list)
		list = append(list, m)
	}
	return list, lines.Err()
}

// exempt reports whether commands may write to what is mounted at a place, as
// far as its files let them: it is writable or below that, or no store of
// files. What covers a hidden place is read-only as it is.
func (cfg Config) exempt(at string) bool {
	inside := func(dir string) bool { return at == dir || strings.HasPrefix(at, dir+"/") }
	return slices.ContainsFunc(cfg.Writable, inside) || slices.ContainsFunc(cfg.Hide, inside) ||
		inside("/proc") || inside("/dev") && at != "/dev"
}

// readOnlySteps leave commands no place to write to but those that are
// writable: each becomes a mount of its own, and every other mount read-only.
func (cfg Config) readOnlySteps(mounts []mountPoint) (steps []step) {
	for _, dir := range cfg.Writable {
		if slices.ContainsFunc(mounts, func(m mountPoint) bool { return m.path == dir }) {
			continue
		}
		steps = append(steps, step{source: dir, target: dir, flags: unix.MS_BIND | unix.MS_REC, what: "keep " + dir + " writable"})
	}
	for _, m := range mounts {
		if m.readOnly || cfg.exempt(m.path) {
			continue
		}
		// One that something else covers is not found; checkReadOnly has the
		// last word.
		steps = append(steps, step{
			target: m.path, flags: unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | m.flags,
			what: "make " + m.path + " read-only", soft: true,
		})
	}
	return steps
}

// checkReadOnly fails where a process sees a mount that should be read-only,
// and is not.
func (cfg Config) checkReadOnly(pid int) error {
	mounts, err := mountsOf(strconv.Itoa(pid))
	if err != nil {
		return err
	}
	return cfg.allReadOnly(mounts)
}

func (cfg Config) allReadOnly(mounts []mountPoint) error {
	for _, m := range mounts {
		if !m.readOnly && !cfg.exempt(m.path) {
			return fmt.Errorf("%s could not be made read-only", m.path)
		}
	}
	return nil
}

// checkWritable refuses places that would undo the rest.
func (cfg Config) checkWritable() error {
	for _, dir := range cfg.Writable {
		if !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" {
			return fmt.Errorf("%q can't stay writable", dir)
		}
	}
	return nil
}
