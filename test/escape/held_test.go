package escape

import (
	"fmt"
	"slices"
	"strings"
)

// further makes another box of the world's kind, runs a script in it, and
// returns what that printed.
func (w *world) further(script string, flags ...string) string {
	w.t.Helper()
	box := strings.TrimSpace(w.ok(append([]string{"create", "--isolation", w.wall, "--user", w.user}, flags...)...))
	defer w.run(nil, "rm", "-f", box)
	return w.ok("exec", box, "--", "sh", "-c", script)
}

// writable are the mounts of a box with a read-only root that may be written
// to, and those that are no files.
var writable = []string{"/workspace", "/tmp", "/var/tmp", "/dev/", "/proc", "/run/carboy"}

// readOnlyRoot looks for a place that can be written to and should not.
func readOnlyRoot(w *world) (found []string) {
	out := w.further(`echo "home $HOME"
awk '{split($6, o, ","); if (o[1] == "rw") print "mount " $5}' /proc/self/mountinfo
for d in / /usr /etc /var /var/lib /opt /run /home /srv /mnt /root /dev /sys; do
	(echo x >$d/.probe) 2>/dev/null && echo "wrote $d"
done
echo x >/workspace/f && echo x >/tmp/f && echo x >"$HOME/f" && echo "kept writable"`, "--read-only")
	w.whole(strings.Contains(out, "kept writable"), "what should stay writable does not:\n%s", out)
	home := "?"
	for line := range strings.Lines(out) {
		kind, at, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch kind {
		case "home":
			home = at
		case "wrote", "mount":
			if at != home && !slices.ContainsFunc(writable, func(p string) bool { return strings.HasPrefix(at, p) }) {
				found = append(found, fmt.Sprintf("%s is writable: %s", at, kind))
			}
		}
	}
	return found
}

// mountPoints tries to rename what leads to a mount in the workspace, and the
// place of the mount itself.
func mountPoints(w *world) (found []string) {
	at := "/workspace/lead/here"
	out := w.further(`python3 -c '
import os
for p in "/workspace/lead/here", "/workspace/lead":
    try: os.rename(p, "/workspace/gone"); print(p)
    except OSError: pass'
ls -d /workspace/lead/here/probe /workspace/gone/here/probe 2>/dev/null; true`, "--mount", w.path(dirTools)+":"+at+":ro")
	w.whole(strings.Contains(out, at+"/probe\n"), "there is no mount:\n%s", out)
	for line := range strings.Lines(out) {
		if line != at+"/probe\n" {
			found = append(found, "renamed: "+strings.TrimSpace(line))
		}
	}
	return found
}
