package subid

import (
	"fmt"
	"os/exec"
)

// installers are package managers, and how each installs newuidmap.
var installers = []struct{ program, command string }{
	{"apt-get", "apt-get install uidmap"},
	{"dnf", "dnf install shadow-utils"},
	{"zypper", "zypper install shadow"},
	{"pacman", "pacman -S shadow"},
	{"apk", "apk add shadow-uidmap"},
}

// Hint says what to do as root for a user of this machine who lacks tools
// or ids; see Mend.
func Hint(uid, count int) string {
	l := Lack{Root: "/", UID: uid, Count: count, Install: "install newuidmap and newgidmap"}
	for _, tool := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(tool); err != nil {
			l.Tools = true
		}
	}
	for _, i := range installers {
		if _, err := exec.LookPath(i.program); err == nil {
			l.Install = i.command
			break
		}
	}
	if mend := Mend(l); mend != "" {
		return "as root: " + mend
	}
	return fmt.Sprintf("as root: give user %d a range of %d ids of its own in /etc/subuid and /etc/subgid", uid, count)
}
