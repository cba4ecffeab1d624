package sudo

import (
	"bytes"
	"embed"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

//go:embed all:bin
var bin embed.FS

// mark is in each of our programs of that name, and in no other: what has it
// was put there before, by this agent or by an older one.
const mark = "carboy/sudo"

// home is where an image has programs of this machine's own.
const home = "/usr/local/bin"

const maxProgram = 8 << 20

// errNotBuilt says that the program was not there when this agent was built.
var errNotBuilt = errors.New("the program sudo is not in this agent: run make build")

// Install puts a program named sudo below the root directory: what asks the
// Server where there is one, else what prints advice and fails. It goes to
// /usr/local/bin where commands look for programs there, as path says, else to
// the first directory where they do. What else has that name there is kept.
func Install(root, searched, advice string, served bool) error {
	program := []byte("#!/bin/sh\n# " + mark + "\necho 'sudo: " + advice + "' >&2\nexit 1\n")
	if served {
		var err error
		if program, err = bin.ReadFile("bin/carboy-sudo"); err != nil || len(program) == 0 {
			return errNotBuilt
		}
	}
	top, err := beneath.OpenDir(root)
	if err != nil {
		return err
	}
	defer top.Close()
	dir, err := directory(top, searched)
	if dir == nil || err != nil {
		return err
	}
	defer dir.Close()
	has, err := dir.ReadFile("sudo", maxProgram)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil || !bytes.Contains(has, []byte(mark)):
		return nil //nolint:nilerr // the image's own, whatever it is
	case bytes.Equal(has, program):
		return nil
	}
	return dir.WriteFile("sudo", program, 0o755)
}

// directory opens where the program is to be; nil: there is no such place.
func directory(top *beneath.Dir, searched string) (*beneath.Dir, error) {
	places := filepath.SplitList(searched)
	if i := slices.Index(places, home); i > 0 {
		places = slices.Insert(slices.Delete(places, i, i+1), 0, home)
	}
	for _, p := range places {
		if !path.IsAbs(p) {
			continue
		}
		fd, err := beneath.OpenInRoot(top.Fd(), strings.TrimPrefix(path.Clean(p), "/"), unix.O_RDONLY|unix.O_DIRECTORY)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return beneath.In(os.NewFile(uintptr(fd), p)), nil
	}
	return nil, nil
}
