package doctor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/backend/subid"
)

// subIDs is how many ids an instance has, of which guestID is the caller's own.
const (
	subIDs  = 1 << 16
	guestID = 1000
)

// subordinateIDs maps them into a user namespace, and becomes the first and
// the last of them.
func subordinateIDs(ctx context.Context, m *machine) Line {
	if m.root {
		return outcome(Info, "not needed by root")
	}
	missing := func(format string, args ...any) Line {
		return outcome(Missing, fmt.Sprintf(format, args...)).because("without root, a sandbox's users are such ids").
			mendedBy(subid.Hint(m.uid, subIDs))
	}
	name := ""
	if u, err := user.LookupId(strconv.Itoa(m.uid)); err == nil {
		name = u.Username
	}
	maps := []idTool{{tool: "newuidmap", file: "/etc/subuid", own: m.uid}, {tool: "newgidmap", file: "/etc/subgid", own: os.Getegid()}}
	for i := range maps {
		t := &maps[i]
		var err error
		if t.path, err = exec.LookPath(t.tool); err != nil {
			return missing("the program %s is not installed", t.tool)
		}
		r, err := subid.Find(t.file, name, m.uid, subIDs)
		if err != nil {
			return missing("%s has no %d ids for the caller: %v", t.file, subIDs, err)
		}
		t.first = r.First
	}
	if err := m.mapAndBecome(ctx, maps); err != nil {
		return missing("%v", err).mendedBy("make newuidmap and newgidmap set-user-id root, on a file system without nosuid; the ranges must be the caller's alone")
	}
	return outcome(OK, fmt.Sprintf("mapped %d of them, from %d on, and became the first and the last", subIDs, maps[0].first))
}

// idTool is a program that maps ids, and what it is to map.
type idTool struct {
	tool, path, file string
	own, first       int
}

func (m *machine) mapAndBecome(ctx context.Context, maps []idTool) error {
	c, err := m.beginUnmapped(ctx, "become")
	if err != nil {
		return err
	}
	defer c.kill()
	for _, t := range maps {
		args := []string{strconv.Itoa(c.cmd.Process.Pid)}
		for _, r := range [][3]int{{0, t.first, guestID}, {guestID, t.own, 1}, {guestID + 1, t.first + guestID + 1, subIDs - guestID - 1}} {
			args = append(args, strconv.Itoa(r[0]), strconv.Itoa(r[1]), strconv.Itoa(r[2]))
		}
		cmd := exec.CommandContext(ctx, t.path, args...)
		cmd.WaitDelay = grace / 2
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w: %s", t.tool, err, strings.TrimSpace(said.String()[:min(said.Len(), maxSaid)]))
		}
	}
	if _, err := c.in.Write([]byte("\n")); err != nil {
		return step("wake a child", err)
	}
	return c.end(ctx)
}
