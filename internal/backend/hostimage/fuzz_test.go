package hostimage_test

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/hostimage"
)

// FuzzAccounts feeds what a host may have as its accounts: whatever it is,
// the image's files stay well-formed and name no person.
func FuzzAccounts(f *testing.F) {
	f.Add("root:x:0:0::/root:/bin/sh\npostgres:x:101:104:PG:/var/lib/postgresql:/bin/bash\nalice:x:1000:1000:Alice:/home/alice:/bin/zsh\n")
	f.Add("a:x:1:0::/home/../root:/x\nb:x:+2:-3::\x00:/x\n:::::::\nuser:x:5:5::/:/x\n")
	f.Add("tty:x:5:alice\nroot:x:0:\n")
	f.Fuzz(func(t *testing.T, host string) {
		for _, c := range []struct {
			out    string
			fields int
		}{{hostimage.Passwd(host, "/bin/sh"), 7}, {hostimage.Group(host), 4}} {
			var names []string
			for l := range strings.Lines(c.out) {
				fs := strings.Split(strings.TrimSuffix(l, "\n"), ":")
				if len(fs) != c.fields || fs[1] != "*" || slices.Contains(names, fs[0]) {
					t.Fatalf("malformed line %q", l)
				}
				names = append(names, fs[0])
				id, err := strconv.Atoi(fs[2])
				if err != nil || id > hostimage.UserID && id != 65534 || id == 0 && fs[0] != "root" || id == hostimage.UserID && fs[0] != hostimage.UserName {
					t.Errorf("id in %q", l)
				}
				if c.fields == 7 && (strings.HasPrefix(fs[5], "/home/") && fs[5] != hostimage.UserHome || fs[4] != "") {
					t.Errorf("a person's in %q", l)
				}
			}
		}
	})
}

func FuzzMountPoints(f *testing.F) {
	f.Add([]byte("20 1 8:1 / / rw - ext4 /dev/sda rw\n21 20 8:2 / /usr/lo\\040cal rw - ext4 /dev/sdb rw\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, p := range hostimage.MountPoints(b) {
			if !path.IsAbs(p) || path.Clean(p) != p {
				t.Errorf("mount point %q", p)
			}
		}
	})
}
