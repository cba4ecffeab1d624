package escape

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// mayRow is what one user's commands may do behind a wall that changes what is
// mounted, or whom the kernel takes them for.
type mayRow struct {
	title      string
	ways       []string // of probe may
	wall, user string
	may        bool
	by         string // who decides
}

// inMounts is the making of a mount namespace.
const inMounts = "mount namespace"

// mayWays are the ways, by the title of their row.
var mayWays = []struct {
	title string
	ways  []string
}{
	{facts.InUser, []string{facts.InUser}},
	{inMounts, []string{inMounts, "mount namespace by clone"}},
	{"overlay", []string{"overlay"}},
	{"FUSE", []string{"FUSE"}},
	{"bind", []string{"bind"}},
	{"move", []string{"move", "move_mount"}},
	{"tmpfs, proc, by the newer calls too", []string{"tmpfs", "proc", "fsopen", "open_tree"}},
	{"remount, umount, pivot_root", []string{"remount", "umount", "pivot_root"}},
}

// mayRows are all of them, behind each wall, as each user that it has.
func mayRows() (rows []mayRow) {
	for _, m := range mayWays {
		for _, wall := range []string{gvisor, process} {
			for _, user := range users(wall) {
				r := mayRow{title: m.title, ways: m.ways, wall: wall, user: user, by: "the commands' filter on the guest's kernel"}
				switch {
				case wall == process:
					r.by = "the list of allowed calls; no user namespaces in the instance's"
				case m.title == inMounts:
					r.by = "the guest's kernel, by a check of ours: a copy would stay writable when a workspace is locked"
				case m.title == facts.InUser:
					r.may, r.by = true, "the guest's kernel, for browsers and builds"
				}
				rows = append(rows, r)
			}
		}
	}
	return rows
}

const mayHead = "| what | wall | user | may | decided by | tested by | seeded |\n|---|---|---|---|---|---|---|\n"

// mayTable is what docs/threat-model.md has of them.
func mayTable() string {
	var b strings.Builder
	b.WriteString(mayHead)
	for _, r := range mayRows() {
		may, probe, seeded := "no, nor as root of a user namespace", "make-mounts", "`mount-allowed`"
		switch own := r.title == facts.InUser || r.title == inMounts && r.wall == process; {
		case r.may:
			may, seeded = "yes", "-"
		case own:
			may, probe, seeded = "no", "make-namespaces, calls-namespace", "`namespace-allowed`"
		case r.wall == process:
			may, probe = "no", "make-mounts, calls-mount"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", r.title, r.wall, r.user, may, r.by, probe, seeded)
	}
	return b.String()
}

// TestMountsAndNamespaces wants each way to change what is mounted to end as
// its row says, as the user and as root of a user namespace, where one may be
// made. That the same ways are open without the filter is for
// TestEveryWeaknessIsNoticed.
func TestMountsAndNamespaces(t *testing.T) {
	for _, wall := range walls() {
		for _, user := range users(wall) {
			t.Run(wall+"/"+user, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, setting{bin: binary(t), wall: wall, user: user})
				var tried facts.Tried
				if err := json.Unmarshal([]byte(w.ok("exec", w.box, "--", facts.Tools+"/probe", "may")), &tried); err != nil {
					t.Fatal(err)
				}
				for way := range tried {
					way = strings.TrimPrefix(way, facts.InUser+", ")
					if !slices.ContainsFunc(mayRows(), func(r mayRow) bool { return slices.Contains(r.ways, way) }) {
						t.Errorf("%s is in no row", way)
					}
				}
				namespaces := tried[facts.InUser] == ""
				for _, r := range mayRows() {
					if r.wall != wall || r.user != user {
						continue
					}
					for _, way := range r.ways {
						r.check(t, tried, way)
						if namespaces && way != facts.InUser {
							r.check(t, tried, facts.InUser+", "+way)
						}
					}
				}
			})
		}
	}
}

func (r mayRow) check(t *testing.T, tried facts.Tried, way string) {
	t.Helper()
	got, ok := tried[way]
	switch {
	case !ok:
		t.Errorf("%s: not tried", way)
	case r.may && got != "":
		t.Errorf("%s: %s; may be done", way, got)
	case !r.may && got == "":
		t.Errorf(finding+"%s was done", way)
	case !r.may && !strings.Contains(got, unix.EPERM.Error()):
		t.Errorf("%s: %q; want %v", way, got, unix.EPERM)
	}
}
