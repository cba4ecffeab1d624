package escape

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// lawful are the files of a world, by path.Match below its directory, that
// change while its daemon and a box do what they are for. All else stays as it
// is, with its mode, owner, kind and content; of a control directory that is
// everything but its being made anew by a start.
var lawful = []struct {
	pattern string
	how     string // content: it may change; life: it may come and go as well; tree: and all below it
}{
	{"state/carboy/carboy.db*", "life"},            // SQLite's, with its journals
	{"state/carboy/daemon.log", "content"},         // is added to
	{"state/carboy/boxes/*/*/disk.img", "content"}, // the box's own
	{"state/carboy/boxes/*/*/since", "content"},    // when it was started
	{"state/carboy/boxes/*/*/box.json", "life"},    // its processes
	{"state/carboy/boxes/*/*/bundle", "tree"},      // gVisor's, written by each start
	{"state/carboy/boxes/*/*/runsc", "tree"},       // gVisor's, of its processes
	{"state/carboy/boxes/*/*/memory", "tree"},      // of a box that is paused
	{"state/carboy/boxes/*/*/m", "tree"},           // mount points
	{"state/carboy/snapshots", "tree"},             // taken in between
	{"state/carboy/shown", "tree"},                 // the command line's, of a diff
	{"state/carboy/applied", "tree"},               // the command line's, of an apply
	{"state/carboy/trash", "tree"},                 // what is being removed
	{"cache/carboy/hostimage", "tree"},             // made anew when the host's own files change
	{"state/carboy/images/tmp", "tree"},            // the daemon's own
	{"state/carboy/box/processes/seen", "tree"},    // the daemon's own
	{"state/carboy/disks/carboy-*", "content"},     // which connection shows a disk: another after a start
	{"state/carboy/boxes/*/*/agent.*", "content"},  // the agent's key and socket: others after a start
}

// dirWatched are the directories of a world that are watched.
var dirWatched = []string{"state", "run", "config", "cache", "outside", dirWork, dirReadOnly, dirTools}

// allowance says what of a file may change.
func allowance(name string) string {
	for _, l := range lawful {
		for at := name; at != "."; at = path.Dir(at) {
			if ok, _ := path.Match(l.pattern, at); ok && (at == name || l.how == "tree") {
				return l.how
			}
		}
	}
	return ""
}

// watched describes all that is watched, but for what may change of it.
func (w *world) watched() map[string]string {
	files := map[string]string{}
	for _, dir := range dirWatched {
		_ = filepath.WalkDir(w.path(dir), func(p string, d fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(w.dir, p)
			how := allowance(rel)
			switch {
			case err != nil:
				return nil // it went away meanwhile, which its parent's list shows
			case how == "tree" && d.IsDir():
				return fs.SkipDir
			case how == "tree" || how == "life":
				return nil
			}
			files[rel] = particulars(p, d, how)
			return nil
		})
	}
	return files
}

// readMost is how long a file may be to be compared by its content, in bytes.
const readMost = 1 << 20

func particulars(p string, d fs.DirEntry, how string) string {
	fi, err := d.Info()
	if err != nil {
		return err.Error()
	}
	text := fi.Mode().String()
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		text += fmt.Sprintf(" of %d:%d", st.Uid, st.Gid)
		if !d.IsDir() && st.Nlink > 1 {
			text += fmt.Sprintf(", %d names", st.Nlink)
		}
	}
	if d.IsDir() || how == "content" {
		return text
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && fi.Mode().IsRegular() && fi.Size() > readMost {
		// Templates of disks are gigabytes of holes. Nobody sets a change time.
		return text + fmt.Sprintf(", %d bytes, %d blocks, changed %v", fi.Size(), st.Blocks, st.Ctim)
	}
	return text + ", " + describe(p, d)
}

// usage is what the state takes up on the disk beside what boxes are given.
func (w *world) usage() (bytes int64) {
	_ = filepath.WalkDir(w.path("state"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == "disk.img" || d.Name() == "memory" || d.Name() == "snapshots" {
			if err == nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if fi, err := d.Info(); err == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				bytes += st.Blocks * 512
			}
		}
		return nil
	})
	return bytes
}

// grows is what records and logs may take up more, in bytes.
const grows = 6 << 20

// control tells what no box may see of the state: how its small files begin,
// and the names of the files in directories that have a socket.
func (w *world) control() (tokens, names []string) {
	_ = filepath.WalkDir(w.path("state"), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.Type()&fs.ModeSocket != 0 {
			entries, _ := os.ReadDir(filepath.Dir(p))
			for _, e := range entries {
				if !e.IsDir() {
					names = append(names, e.Name())
				}
			}
		}
		if d.Type().IsRegular() && !strings.HasPrefix(d.Name(), "carboy.db") {
			tokens = append(tokens, beginning(p)...)
		}
		return nil
	})
	slices.Sort(names)
	return append(tokens, beginning(w.path("outside/file"))...), slices.Compact(names)
}

// beginning is a digest of how a file begins, unless that says too little.
func beginning(p string) []string {
	f, err := os.Open(p)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, facts.TokenSize)
	n, _ := f.Read(b)
	if n < 8 || strings.Trim(string(b[:n]), "\x00") == "" {
		return nil
	}
	sum := sha256.Sum256(b[:n])
	return []string{hex.EncodeToString(sum[:])}
}
