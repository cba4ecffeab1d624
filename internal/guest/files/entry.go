package files

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

// toValid replaces what is not UTF-8 in s by U+FFFD, for protobuf's sake.
func toValid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// entry describes what is at p. It runs on a worker. Of a symbolic link, the
// type and mode are its target's and everything else is its own, as envd has
// it; a target that can't be followed leaves the type unspecified.
func entry(p string, names account.Names) (*filesystem.EntryInfo, error) {
	st, err := os.Lstat(p)
	if err != nil {
		return nil, err
	}
	return describe(p, st, names), nil
}

func describe(p string, st fs.FileInfo, names account.Names) *filesystem.EntryInfo {
	e := &filesystem.EntryInfo{
		Name:         toValid(path.Base(p)),
		Path:         toValid(p),
		Size:         st.Size(),
		Type:         typeOf(st.Mode()),
		Mode:         uint32(st.Mode().Perm()),
		Permissions:  st.Mode().String(),
		ModifiedTime: timestamp(st.ModTime()),
		Metadata:     readMetadata(p),
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		e.Owner, e.Group = names.User(sys.Uid), names.Group(sys.Gid)
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		follow(e, p)
	}
	return e
}

func follow(e *filesystem.EntryInfo, p string) {
	e.Type, e.Mode = filesystem.FileType_FILE_TYPE_UNSPECIFIED, 0
	target, err := filepath.EvalSymlinks(p)
	if err != nil {
		target = p
	} else if st, err := os.Lstat(target); err == nil {
		e.Type, e.Mode = typeOf(st.Mode()), uint32(st.Mode().Perm())
	}
	target = toValid(target)
	e.SymlinkTarget = &target
}

func typeOf(m fs.FileMode) filesystem.FileType {
	switch {
	case m.IsRegular():
		return filesystem.FileType_FILE_TYPE_FILE
	case m.IsDir():
		return filesystem.FileType_FILE_TYPE_DIRECTORY
	}
	return filesystem.FileType_FILE_TYPE_UNSPECIFIED
}

// timestamp returns nil for a time that the wire format can't hold: a guest
// may set any.
func timestamp(t time.Time) *timestamppb.Timestamp {
	ts := timestamppb.New(t)
	if ts.CheckValid() != nil {
		return nil
	}
	return ts
}
