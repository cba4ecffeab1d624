package layer_test

import (
	"archive/tar"
	"strings"
	"syscall"
	"testing"
)

// rootlessLayer has owners, a whiteout, a mark, and modes that shut its maker
// out.
func rootlessLayer() []byte {
	return archive(
		entry(tar.Header{Typeflag: tar.TypeDir, Name: "d", Mode: 0o555, Uid: 5}, ""), file("d/f", "x"), file(".wh.g", ""), file("d/.wh..wh..opq", ""),
		entry(tar.Header{Typeflag: tar.TypeDir, Name: "shut"}, ""), file("shut/f", "x"),
	)
}

func TestWithoutPrivileges(t *testing.T) {
	needRoot(t)
	attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	got := unpackAs(t, 65534, attr, rootlessLayer())
	want := `ok owners left out, for want of root: "d", "d/f", "shut" and 1 more
. dir 755 65534:65534
d dir 555 65534:65534 opaque
d/f file 644 65534:65534 "x"
g whiteout
shut dir 0 65534:65534
shut/f file 644 65534:65534 "x"`
	if got != want {
		t.Errorf("as nobody: %s\nwant %s", got, want)
	}
}

// In a user namespace ids are kept as far as there are any.
func TestInAUserNamespace(t *testing.T) {
	needRoot(t)
	for _, tt := range []struct {
		name string
		ids  int
		want string // the whole, or its beginning
	}{
		{"all-ids", 65536, `ok 
. dir 755 100000:100000
d dir 555 100005:100000 opaque
d/f file 644 100000:100000 "x"
g whiteout
shut dir 0 100000:100000
shut/f file 644 100000:100000 "x"`},
		{"one-id", 1, "error layer: owner 5:0 does not exist here\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: tt.ids}}
			got := unpackAs(t, 100000, &syscall.SysProcAttr{
				Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
				Credential: &syscall.Credential{Uid: 0, Gid: 0},
			}, rootlessLayer())
			if !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %s\nwant %s", got, tt.want)
			}
		})
	}
}
