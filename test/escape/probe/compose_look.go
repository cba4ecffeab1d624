package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// Bounds of one look.
const (
	lookDirs    = 24 // directories
	lookEntries = 64 // entries of one of them
	keepNews    = 48
)

// look goes through what a step may have brought into view, and remembers
// what was not to be seen before.
func (s *sequence) look(st facts.Step) {
	switch st.Op {
	case "mount":
		if st.N&(unix.MS_REMOUNT|unix.MS_PRIVATE|unix.MS_SHARED|unix.MS_SLAVE|unix.MS_UNBINDABLE) != 0 {
			return
		}
		s.covered = append(s.covered, st.B)
		s.survey(st.B, below(st))
	case "tree", "fsmount":
		s.covered = append(s.covered, st.B)
		s.survey(st.B, []string{st.A})
	case "umount":
		s.survey(st.B, []string{st.B})
	case "setns":
		s.survey("/", nil)
	case "pivot", "chroot":
		s.survey("/", s.rooted)
	case "up", "here":
		s.survey(".", s.real("proc/thread-self/cwd"))
	case "handle":
		if n := len(s.held); n > 0 {
			s.survey("/proc/thread-self/fd/"+strconv.Itoa(s.held[n-1]), s.real("proc/thread-self/fd/"+strconv.Itoa(s.held[n-1])))
		}
	case "connect":
		if !s.made[path.Clean(st.B)] && slices.Contains(s.news, st.B) {
			s.find("%s, which was not to be seen, takes connections", st.B)
		}
	}
}

// real is where a link of /proc leads by the root that the sequence began with,
// or nothing where that can't be said.
func (s *sequence) real(link string) []string {
	b := make([]byte, 4096)
	n, err := unix.Readlinkat(s.root, link, b)
	if err != nil || n == 0 || b[0] != '/' {
		return nil
	}
	return []string{string(b[:n])}
}

// below are the directories that a mount shows.
func below(st facts.Step) (list []string) {
	if st.Kind == "" {
		return []string{st.A}
	}
	for opt := range strings.SplitSeq(st.Data, ",") {
		name, value, _ := strings.Cut(opt, "=")
		if name == "lowerdir" || name == "upperdir" {
			list = append(list, strings.Split(value, ":")...)
		}
	}
	return list
}

// survey looks below at, where the directories from are shown: first at what
// lies beneath the box's own mounts there, then at the rest. Where from is not
// known, nothing is taken for new, but all is looked at.
func (s *sequence) survey(at string, from []string) {
	var dirs []string
	for _, f := range from {
		for _, p := range s.places.points {
			if f := path.Clean(f); within(p, f) || f == "/" {
				dirs = append(dirs, path.Join(at, strings.TrimPrefix(p, f)))
			}
		}
	}
	dirs = append(unique(dirs), at)
	for i := 0; i < len(dirs) && i < lookDirs; i++ {
		dirs = append(dirs, s.surveyed(dirs[i], at, from)...)
	}
}

// surveyed looks at one directory and returns those in it that are new.
func (s *sequence) surveyed(dir, at string, from []string) (dirs []string) {
	list := entries(dir)
	s.control(dir, list)
	rel := strings.TrimPrefix(strings.TrimPrefix(path.Clean(dir), path.Clean(at)), "/")
	for _, e := range list[:min(len(list), lookEntries)] {
		p := path.Join(dir, e.Name())
		if s.Marker != "" && strings.Contains(e.Name(), s.Marker) {
			s.find("%s: %s", foundHost, p)
			return nil
		}
		if s.made[p] || strings.HasPrefix(e.Name(), "composed") || s.shown(from, path.Join(rel, e.Name())) {
			continue
		}
		if e.IsDir() {
			dirs = append(dirs, p)
		}
		if e.Type().IsRegular() {
			s.token(p)
		}
		if len(from) > 0 && len(s.news) < keepNews && !slices.Contains(s.news, p) {
			s.news = append(s.news, p)
		}
	}
	return dirs
}

// entries lists a directory, in order.
func entries(dir string) []os.DirEntry {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	list, _ := f.ReadDir(256)
	slices.SortFunc(list, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list
}

// shown reports whether a name could be seen in one of the directories before
// anything was mounted.
func (s *sequence) shown(from []string, rel string) bool {
	for _, f := range from {
		p := path.Join("/", f, rel)
		if known, ok := s.places.shown[path.Dir(p)]; ok {
			if slices.Contains(known, path.Base(p)) {
				return true
			}
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(s.root, strings.TrimPrefix(p, "/"), &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			return true
		}
	}
	return false
}

// control looks for a directory of the control plane, by what such a one has.
func (s *sequence) control(dir string, list []os.DirEntry) {
	var have []string
	for _, e := range list {
		n := e.Name()
		if slices.Contains(s.Names, n) && !s.made[path.Join(dir, n)] {
			have = append(have, n)
		}
	}
	if len(have) > 1 {
		s.find("%s has %s", dir, strings.Join(have, ", "))
	}
}

// token compares a file with what lies in the host's state.
func (s *sequence) token(p string) {
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	b := make([]byte, facts.TokenSize)
	n, err := unix.Pread(fd, b, 0)
	if err != nil || n <= 0 {
		return
	}
	sum := sha256.Sum256(b[:n])
	if slices.Contains(s.Tokens, hex.EncodeToString(sum[:])) {
		s.find("%s is read: it lies outside", p)
	}
}
