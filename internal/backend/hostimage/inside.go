package hostimage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// inside looks at paths as an instance will see them: the parts over the skeleton.
type inside struct {
	skeleton string
	host     string
	parts    []Part
}

// where returns the file of this machine behind a path of the image.
func (in *inside) where(p string) string {
	for _, part := range in.parts {
		if within(part.Path, p) {
			return filepath.Join(in.host, p)
		}
	}
	return filepath.Join(in.skeleton, p)
}

// maxLinks is how many links the kernel follows in one path.
const maxLinks = 40

// resolve follows links as the kernel would inside an instance, and returns the
// path of the image that it ends at. It fails where an instance would find nothing.
func (in *inside) resolve(p string) (string, error) {
	done, todo, hops := "/", strings.Split(path.Clean(p), "/"), 0
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if name == "" || name == "." {
			continue
		}
		if name == ".." {
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, name)
		at := in.where(next)
		fi, err := os.Lstat(at)
		if err != nil {
			return next, err
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if hops++; hops > maxLinks {
			return next, unix.ELOOP
		}
		target, err := os.Readlink(at)
		if err != nil {
			return next, err
		}
		if path.IsAbs(target) {
			done = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return done, nil
}

// brokenCommands notes the commands that work on the host and won't inside.
func (in *inside) brokenCommands() []Note {
	var out []Note
	for _, dir := range commandDirs {
		ents, err := os.ReadDir(filepath.Join(in.host, dir))
		if err != nil {
			continue
		}
		for _, e := range ents {
			p := path.Join("/", dir, e.Name())
			switch {
			case e.Type()&fs.ModeSymlink != 0:
				if text := in.brokenLink(p); text != "" {
					out = append(out, Note{p, text})
				}
			case e.Type().IsRegular() && strings.HasPrefix(dir, "usr/local/"):
				// Packages know where their interpreters are; people's own
				// scripts may name one that is in somebody's home.
				if text := in.brokenScript(p); text != "" {
					out = append(out, Note{p, text})
				}
			}
		}
	}
	return out
}

// brokenLink says why a command that is a link has no program inside, or "".
func (in *inside) brokenLink(p string) string {
	stop, err := in.resolve(p)
	if err == nil {
		return ""
	}
	outside := inside{skeleton: in.host} // the host as it sees itself
	if _, err := outside.resolve(p); err != nil {
		return "" // it has none there either
	}
	return fmt.Sprintf("broken inside: it leads to %s, which is not in the image", stop)
}

// brokenScript says why a script's interpreter is not there inside, or "".
func (in *inside) brokenScript(p string) string {
	f, err := os.Open(filepath.Join(in.host, p))
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 256)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ""
	}
	line, _, _ := bytes.Cut(b[:n], []byte("\n"))
	rest, ok := bytes.CutPrefix(line, []byte("#!"))
	fields := bytes.Fields(rest)
	if !ok || len(fields) == 0 || !path.IsAbs(string(fields[0])) {
		return ""
	}
	if stop, err := in.resolve(string(fields[0])); err != nil {
		return fmt.Sprintf("broken inside: its interpreter %s is not in the image", stop)
	}
	return ""
}
