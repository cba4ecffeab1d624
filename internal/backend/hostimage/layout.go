package hostimage

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/mountinfo"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// layout finds the parts of the image and the links that lead into them.
func (h *host) layout(p *blueprint) error {
	if fi, err := os.Lstat(filepath.Join(h.path, "usr")); err != nil || !fi.IsDir() {
		return sandbox.Errorf(sandbox.Unsupported, "the host image needs a /usr, and this machine has none")
	}
	h.addPart(p, "/usr")
	for _, name := range linked {
		fi, err := os.Lstat(filepath.Join(h.path, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if fi.IsDir() {
			h.addPart(p, "/"+name) // a system that is not merged
			continue
		}
		target, err := os.Readlink(filepath.Join(h.path, name))
		if err != nil || !within("/usr", targetOf(name, target)) {
			h.note(name, "left out: it leads out of /usr")
			continue
		}
		p.links[name] = target
	}
	if fi, err := os.Lstat(filepath.Join(h.path, "var/lib/dpkg")); err == nil && fi.IsDir() {
		h.addPart(p, "/var/lib/dpkg")
	}
	if h.path == "/" {
		h.addNested(p)
	}
	for _, m := range masked {
		if fi, err := os.Lstat(filepath.Join(h.path, m.Path)); err == nil && fi.IsDir() {
			p.masks = append(p.masks, m)
		}
	}
	return nil
}

func (h *host) addPart(p *blueprint, at string) {
	p.parts = append(p.parts, Part{Path: at, Source: filepath.Join(h.path, at)})
}

// addNested adds the file systems that are mounted inside a part: an overlay
// shows only the one that its lower directory is on.
func (h *host) addNested(p *blueprint) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return
	}
	for _, point := range mountPoints(b) {
		inside := slices.ContainsFunc(p.parts, func(q Part) bool { return within(q.Path, point) })
		known := slices.ContainsFunc(p.parts, func(q Part) bool { return q.Path == point })
		if fi, err := os.Stat(point); inside && !known && err == nil && fi.IsDir() {
			h.addPart(p, point)
		}
	}
}

// mountPoints returns the mount points in a mountinfo file, those above
// others first.
func mountPoints(info []byte) []string {
	var out []string
	sc := bufio.NewScanner(bytes.NewReader(info))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if m, ok := mountinfo.Parse(sc.Text()); ok && path.IsAbs(m.Point) && path.Clean(m.Point) == m.Point {
			out = append(out, m.Point)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// takeLinks reads the links among the sources. It leaves out those whose
// target is not in the image, so that the names of what they lead to do not
// show.
func (h *host) takeLinks(p *blueprint) []source {
	has := map[string]bool{}
	for _, s := range p.sources {
		has["/"+s.path] = true
	}
	var out []source
	for _, s := range p.sources {
		if s.is(unix.S_IFLNK) {
			var err error
			if s.target, err = h.readLink(s.path); err != nil {
				h.note(s.path, "left out: %v", err)
				continue
			}
			if t := targetOf(s.path, s.target); !has[t] && !p.shows(t) {
				h.note(s.path, "left out: it leads to something that is not in the image")
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

// shows reports whether a path of the image is in a part, as /bin/sh is by
// the link /bin.
func (p *blueprint) shows(name string) bool {
	for _, q := range p.parts {
		if within(q.Path, name) {
			return true
		}
	}
	for dir, target := range p.links {
		if within("/"+dir, name) && within("/usr", targetOf(dir, target)) {
			return true
		}
	}
	return false
}
