package hostimage

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Audit walks the whole image, parts included, and notes what its owner may
// not expect an instance to see or to lack: links into people's homes, sockets,
// files named as keys and passwords are, and what not every user of the host
// may read but root inside an instance may. It changes nothing, and takes as long
// as find does.
func (r Root) Audit(ctx context.Context) ([]Note, error) {
	var out []Note
	roots := []Part{{Path: "/", Source: r.Dir}}
	for _, p := range append(roots, r.Parts...) {
		err := filepath.WalkDir(p.Source, func(at string, d fs.DirEntry, err error) error {
			if cerr := context.Cause(ctx); cerr != nil {
				return cerr
			}
			rel, rerr := filepath.Rel(p.Source, at)
			if rerr != nil {
				return rerr
			}
			name := path.Join(p.Path, rel)
			if err != nil {
				out = append(out, Note{name, "can't be looked at"})
				return nil
			}
			if d.IsDir() && rel != "." && slices.ContainsFunc(r.Parts, func(q Part) bool { return q.Path == name }) {
				return fs.SkipDir // a part of its own
			}
			if d.IsDir() && slices.ContainsFunc(r.Masks, func(m Mask) bool { return m.Path == name }) {
				return fs.SkipDir // covered
			}
			if text := suspicious(p, at, name, d); text != "" {
				out = append(out, Note{name, text})
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("audit host image: %w", err)
		}
	}
	return out, nil
}

// secretNames are what files of keys, passwords and host identities are called.
var secretNames = []string{
	"shadow", "gshadow", "shadow-", "gshadow-", "machine-id", "sudoers",
	"id_rsa", "id_ecdsa", "id_ed25519", "ssh_host_*_key", ".netrc", ".git-credentials", ".pgpass", "docker.sock",
}

func isSecretName(name string) bool {
	return slices.ContainsFunc(secretNames, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// suspicious says what is odd about one entry, or "".
func suspicious(p Part, at, name string, d fs.DirEntry) string {
	switch {
	case d.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(at)
		if err != nil {
			return "can't be looked at"
		}
		if t := targetOf(name, target); (within("/home", t) || within("/root", t)) && !within(UserHome, t) {
			return "leads into somebody's home"
		}
	case d.Type()&(fs.ModeSocket|fs.ModeDevice) != 0:
		return "is a socket or device"
	case d.Type().IsRegular() && isSecretName(d.Name()):
		return "is named like a secret"
	case p.Path != "/":
		fi, err := d.Info()
		if err != nil {
			return "can't be looked at"
		}
		// Where others may execute a program that they can't read, it is a
		// set-id helper of the system's own.
		if fi.Mode().Perm()&0o005 == 0 && fi.Size() > 0 && !strings.HasPrefix(name, "/var/lib/dpkg/") {
			return "not every user of the host may read it, root inside may"
		}
	}
	return ""
}
