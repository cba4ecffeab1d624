package guest

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// spare is a directory of programs that images leave empty, in most of their
// PATHs.
const spare = "/usr/local/sbin"

// addPrograms gives the image below root what it lacks of programs. Where its
// directories are not the agent's to write to, as those of a machine's own that
// an ordinary user sees, they are put on a file system of their own over an
// empty one.
func (a *agent) addPrograms(root string) error {
	searched := cmp.Or(a.cfg.Env["PATH"], commandPath)
	err := errors.Join(namePython(root, searched, ""), a.installSudo(root, searched))
	if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS) {
		return err
	}
	if merr := mountSpare(root, searched); merr != nil {
		return errors.Join(err, merr)
	}
	return errors.Join(namePython(root, searched, spare), a.installSudo(root, spare))
}

// mountSpare makes the spare directory one that the agent may write to.
func mountSpare(root, searched string) error {
	dir := filepath.Join(root, spare)
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(list) > 0 || !slices.Contains(filepath.SplitList(searched), spare) {
		return fmt.Errorf("%s has files, or is not searched", spare)
	}
	if err := unix.Mount("programs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=8m"); err != nil {
		return fmt.Errorf("mount %s: %w", spare, err)
	}
	return nil
}
