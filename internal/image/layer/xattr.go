package layer

import (
	"archive/tar"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The records in which archives hold what mode bits don't.
const (
	paxXattr    = "SCHILY.xattr."
	paxXattrBSD = "LIBARCHIVE.xattr."
)

// unkept are the records that are left out with a note.
var unkept = []struct{ prefix, kind string }{
	{"SCHILY.acl.", "access lists left out"},
	{"SCHILY.fflags", "file flags left out"},
	{"RHT.security.", "security labels left out"},
}

// xattrs returns the attributes to set on the entry, and notes the others.
func (u *unpacker) xattrs(h *tar.Header) (map[string]string, error) {
	if len(h.PAXRecords) == 0 {
		return nil, nil
	}
	keys, total := make([]string, 0, len(h.PAXRecords)), 0
	for key, value := range h.PAXRecords {
		keys, total = append(keys, key), total+len(key)+len(value)
	}
	if total > maxPAX {
		return nil, refuse("its PAX records take %d bytes, over %d", total, maxPAX)
	}
	slices.Sort(keys) // or notes would differ from one time to the next
	var keep map[string]string
	size := 0
	for _, key := range keys {
		u.noteRecord(h, key)
		name, ok := strings.CutPrefix(key, paxXattr)
		if !ok {
			continue
		}
		value := h.PAXRecords[key]
		if size += len(name) + len(value); size > u.o.Limits.Xattr {
			return nil, refuse("its extended attributes take more than %d bytes", u.o.Limits.Xattr)
		}
		kept, err := u.keeps(h, name)
		if err != nil {
			return nil, err
		}
		if kept {
			if keep == nil {
				keep = map[string]string{}
			}
			keep[name] = value
		}
	}
	return keep, nil
}

func (u *unpacker) noteRecord(h *tar.Header, key string) {
	for _, r := range unkept {
		if strings.HasPrefix(key, r.prefix) {
			u.notes.add(r.kind, h.Name)
		}
	}
	if name, ok := strings.CutPrefix(key, paxXattrBSD); ok {
		if _, both := h.PAXRecords[paxXattr+name]; !both {
			u.notes.add("extended attributes in libarchive's form left out", h.Name)
		}
	}
}

// keeps reports whether the attribute called name is set.
func (u *unpacker) keeps(h *tar.Header, name string) (bool, error) {
	space, _, _ := strings.Cut(name, ".")
	switch {
	case name == "" || strings.IndexByte(name, 0) >= 0:
		return false, refuse("an extended attribute without a usable name")
	case len(name) > maxComponent:
		return false, refuse("the name of an extended attribute is %d bytes long, over %d", len(name), maxComponent)
	case strings.Contains(name+".", ".overlay."):
		return false, refuse("the extended attribute %s forges a mark of overlayfs", quote(name))
	case name == "security.capability":
		u.notes.add("file capabilities left out", h.Name)
	case space == "trusted", space == "security", space == "system":
		u.notes.add("extended attributes of "+space+".* left out", h.Name)
	case space != "user" || name == "user" || name == "user.":
		u.notes.add("extended attributes of unknown kinds left out", h.Name)
	case h.Typeflag == tar.TypeLink:
		return false, nil // its file has them
	case !canHoldXattrs(h.Typeflag):
		u.notes.add("extended attributes of links and fifos left out", h.Name)
	default:
		return true, nil
	}
	return false, nil
}

// canHoldXattrs reports whether Linux lets what the entry is have user.*.
func canHoldXattrs(typeflag byte) bool {
	switch typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse, tar.TypeDir:
		return true
	}
	return false
}

// setXattrs sets attributes of an open file. Those for which the file system
// has no room or no form are noted.
func (u *unpacker) setXattrs(fd int, h *tar.Header, attrs map[string]string) error {
	for name, value := range attrs {
		err := unix.Fsetxattr(fd, name, []byte(value), 0)
		switch {
		case err == nil:
		case is(err, unix.ENOTSUP, unix.E2BIG, unix.ERANGE, unix.ENOSPC):
			u.notes.add("extended attributes that the file system does not hold left out", h.Name)
		default:
			return fmt.Errorf("set an extended attribute: %w", err)
		}
	}
	return nil
}

// setOpaque marks the directory rel as one that hides what is below it.
func (u *unpacker) setOpaque(dir int, name, rel string) error {
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer unix.Close(fd)
	attr := u.o.opaque()
	if err := unix.Fsetxattr(fd, attr, []byte("y"), 0); err != nil {
		return unsupported(err, "keep images on ext4, xfs or btrfs, as root or with user.* marks",
			"layer: mark directory %s with %s: %v", quote(rel), attr, err)
	}
	u.hiding[rel], u.last = true, trail{}
	if rel == "." {
		u.res.RootOpaque = true
	}
	return nil
}
