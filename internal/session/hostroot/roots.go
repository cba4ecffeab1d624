// Package hostroot decides which directories of the host a session may be
// given: those that are, or lie below, the operator's roots. It holds what it
// accepts open, so that a name that changes meanwhile leads nowhere else, and
// refuses system directories, and those of others that act through the caller.
package hostroot

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

// Config are the settings about directories of the host. All may be empty.
type Config struct {
	// HostRoot is where sessions' directories are, and what a relative path of
	// the others is below.
	HostRoot string
	// DefaultWorkspace is the workspace of sessions that name none; "": that
	// called "default" in HostRoot, where there is one.
	DefaultWorkspace string
	// AllowedMountRoots are what may be mounted, with all below them; empty:
	// HostRoot.
	AllowedMountRoots []string
	// Private are the asking program's own directories: nothing in them is mounted unless
	// an allowed root lies in there too.
	Private []string
	// Make makes a directory of the settings, with those above it that are
	// missing; nil: os.MkdirAll.
	Make func(path string, mode uint32) error
}

const maxPath = 4095 // bytes

// Roots says which directories of the host a session may be given.
//
// Every decision is about an open directory: it and all that is above it are
// compared with the directories that are allowed and those that are closed, by
// device and inode. Links and renames under way lead past none of them, and what
// was accepted is told by its inode when it is mounted. The settings' own paths
// are trusted, and are opened anew at each call, so that they may come to be
// later. A Roots is safe for concurrent use.
type Roots struct {
	hostRoot, defaultWorkspace string

	allowed, private []string

	make func(path string, mode uint32) error
}

// New returns the Roots of a configuration. It only looks where links in
// the settings lead; the directories need not exist.
func New(c Config) (*Roots, error) {
	r := &Roots{make: c.Make}
	if r.make == nil {
		r.make = func(path string, mode uint32) error { return os.MkdirAll(path, os.FileMode(mode)) }
	}
	var err error
	set := func(name, value string) string {
		value = strings.TrimSpace(value)
		if value == "" || err != nil {
			return ""
		}
		if !filepath.IsAbs(value) && r.hostRoot != "" {
			value = filepath.Join(r.hostRoot, value)
		}
		if r := reject(value); r != "" {
			err = fault.Invalid("%s: %s", name, r)
			return ""
		}
		if value, err = realPath(value); err != nil {
			err = fault.Invalid("%s: %v", name, err)
		}
		return value
	}
	r.hostRoot = set("host_root", c.HostRoot)
	if strings.TrimSpace(c.DefaultWorkspace) != "" {
		r.defaultWorkspace = set("default_workspace", c.DefaultWorkspace)
	} else if r.hostRoot != "" {
		r.defaultWorkspace = set("default_workspace", filepath.Join(r.hostRoot, "default"))
	}
	for _, root := range c.AllowedMountRoots {
		if root = set("allowed_mount_roots", root); root != "" {
			r.allowed = append(r.allowed, root)
		}
	}
	if len(r.allowed) == 0 && r.hostRoot != "" {
		r.allowed = []string{r.hostRoot}
	}
	for _, dir := range c.Private {
		if dir = set("private", dir); dir != "" {
			r.private = append(r.private, dir)
		}
	}
	return r, err
}

func reject(path string) string {
	if strings.ContainsRune(path, 0) || len(path) > maxPath {
		return "not a usable path"
	}
	return ""
}

// realPath makes a path absolute and follows its links, as far as it is there.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for dir, rest := path, ""; ; dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest) {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return "", err
		}
	}
}

// HostRoot returns the directory that sessions' own are below; "": none.
func (r *Roots) HostRoot() string { return r.hostRoot }

// DefaultWorkspace returns the workspace of sessions that name none; "": it is
// their own.
func (r *Roots) DefaultWorkspace() string { return r.defaultWorkspace }

// Allowed returns the directories that may be mounted, with all below them.
func (r *Roots) Allowed() []string { return slices.Clone(r.allowed) }

// Access says how a directory is asked for.
type Access struct {
	// Make has it made where it is missing, with those above it that are missing
	// too, for whom the directory belongs to that it lies in.
	Make bool
	// UID is whose it must be; nil: anyone's. Inside, the agent acts as a
	// directory's owner: a caller must not be lent the rights of somebody else.
	UID *uint32
}

// Open returns the directory that a path of the host leads to. It must be an
// allowed one, or below one. The error is of kind Invalid for what is no
// directory, Denied for what may not be mounted; it names the setting to change.
// What is not allowed gets the same answer whether it is there or not.
func (r *Roots) Open(path string, a Access) (*Dir, error) {
	if !filepath.IsAbs(path) || reject(path) != "" {
		return nil, fault.Invalid("host_path must be an absolute host path, not %q", fault.Cut(path))
	}
	if len(r.allowed) == 0 {
		return nil, sandbox.Errorf(sandbox.Denied, "host_path mounting is disabled because no allowed_mount_roots are configured").
			WithHint("name the directories that may be mounted in box.allowed_mount_roots")
	}
	dir, left, why := deepest(path)
	if dir == nil {
		return nil, notThere(path, why)
	}
	defer func() { _ = dir.Close() }()
	if err := r.check(path, dir, why == nil); err != nil {
		return nil, err
	}
	makable := a.Make && errors.Is(why, unix.ENOENT) && !slices.Contains(strings.Split(path, "/"), "..")
	if why != nil && !makable {
		return nil, notThere(path, why)
	}
	if len(left) > 0 {
		made, err := makeBelow(dir, left)
		if err != nil {
			return nil, notThere(path, err)
		}
		defer func() { _ = made.Close() }()
		dir = made
	}
	d, err := describe(dir)
	if err != nil {
		return nil, notThere(path, err)
	}
	if a.UID != nil && *a.UID != 0 && *a.UID != d.UID {
		_ = d.Close()
		return nil, sandbox.Errorf(sandbox.Denied, "host_path %s is not yours", fault.Show(path)).WithHint("name a directory that you own")
	}
	return d, nil
}

// Check is Open of a directory that is not wanted yet.
func (r *Roots) Check(path string) error {
	d, err := r.Open(path, Access{})
	if err != nil {
		return err
	}
	return d.Close()
}

// MakeDefault makes the default workspace where it is missing, and the allowed
// root that it lies in. One that is there is left as it is.
func (r *Roots) MakeDefault() error {
	if r.defaultWorkspace == "" {
		return nil
	}
	switch fi, err := os.Stat(r.defaultWorkspace); {
	case err == nil && fi.IsDir():
		return nil
	case err == nil:
		return fault.Invalid("default_workspace must point to a directory on the host: %s is none", fault.Show(r.defaultWorkspace))
	}
	if len(r.allowed) == 0 {
		return sandbox.Errorf(sandbox.Denied, "default_workspace cannot be created because no allowed_mount_roots are configured").
			WithHint("name the directory that it is to be in in box.allowed_mount_roots")
	}
	// The operator's own settings: here their text may be compared.
	i := slices.IndexFunc(r.allowed, func(root string) bool { return textBelow(r.defaultWorkspace, root) })
	if i < 0 {
		return sandbox.Errorf(sandbox.Denied, "default_workspace is outside allowed_mount_roots: %s", strings.Join(r.allowed, ", ")).
			WithHint("add %s to box.allowed_mount_roots", r.defaultWorkspace)
	}
	if err := r.make(r.allowed[i], 0o755); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "default_workspace %s: %w", fault.Show(r.defaultWorkspace), err)
	}
	d, err := r.Open(r.defaultWorkspace, Access{Make: true})
	if err != nil {
		return err
	}
	return d.Close()
}

// Named is what Check is where the directories are those of another machine:
// it can only compare text, and the machine that mounts must check for itself.
func (r *Roots) Named(path string) error {
	if len(r.allowed) == 0 {
		return sandbox.Errorf(sandbox.Denied, "host_path mounting is disabled because no allowed_mount_roots are configured").
			WithHint("name the directories that may be mounted in box.allowed_mount_roots")
	}
	path = filepath.Clean(path)
	if !slices.ContainsFunc(r.allowed, func(root string) bool { return textBelow(path, root) }) {
		return r.outside(path)
	}
	return nil
}

// textBelow reports whether a clean path is dir or names something in it.
func textBelow(path, dir string) bool {
	rest, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rest)
}

func (r *Roots) outside(path string) error {
	return sandbox.Errorf(sandbox.Denied, "host_path is outside allowed_mount_roots: %s (asked for %s)",
		strings.Join(r.allowed, ", "), fault.Show(path)).
		WithHint("add the directory to box.allowed_mount_roots")
}

func notThere(path string, err error) error {
	e := fault.Invalid("host_path must point to an existing directory on the host: %s", fault.Show(path))
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		e = sandbox.Errorf(sandbox.Denied, "host_path %s: this service may not use it", fault.Show(path))
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		e = fault.Invalid("host_path %s: not a usable path", fault.Show(path))
	default:
		e = sandbox.Errorf(sandbox.Internal, "host_path %s: it can't be opened", fault.Show(path))
	}
	e.Err = err
	return e
}
