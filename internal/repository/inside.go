package repository

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// objectsInside is where a sandbox shows the objects of a repository that lies outside
// the tree.
const objectsInside = "/var/lib/carboy/git/objects"

// Bounds of a git directory that is made for a sandbox.
const (
	maxCopied      = 512 << 20 // bytes
	maxCopiedFiles = 200_000
)

// Mount is a directory of objects that a sandbox is to show read-only.
type Mount struct {
	Host, Guest string
	// Borrowed: they are another repository's, and who made the tree chose which.
	Borrowed bool
}

// String is the mount as --mount has it.
func (m Mount) String() string { return m.Host + ":" + m.Guest + ":ro" }

// Mounts returns the further directories that a sandbox is to show: the objects that a
// view of the tree lacks. Who borrowed some is to be asked.
func (r *Repository) Mounts() (mounts []Mount) {
	if r.Outside {
		mounts = append(mounts, Mount{Host: filepath.Join(r.CommonDir, "objects"), Guest: objectsInside})
	}
	for _, s := range r.alternate {
		mounts = append(mounts, Mount{s.host, s.inside, true})
	}
	return mounts
}

// Notes returns what the user should know of how git will be inside.
func (r *Repository) Notes() []string {
	notes := r.notes
	if r.Outside {
		notes = append(notes, fmt.Sprintf("the repository of this directory lies in %s: its objects are shown inside too, read-only", r.CommonDir))
	}
	for _, s := range r.alternate {
		notes = append(notes, fmt.Sprintf("the repository borrows objects: %s is shown inside too, read-only", s.host))
	}
	if r.Partial {
		notes = append(notes, "the repository is a partial clone: git inside fetches what it lacks, where the policy lets it; carboy apply takes files out, carboy fetch no commits")
	}
	return notes
}

// Anonymous says what git does not know of the user, and how to tell it; "": it knows all.
func (r *Repository) Anonymous() string {
	if !r.Is() || r.Name != "" && r.Email != "" {
		return ""
	}
	var missing, tell []string
	for _, s := range []struct{ name, value, example string }{{"user.name", r.Name, "'YOUR NAME'"}, {"user.email", r.Email, "ADDRESS"}} {
		if s.value == "" {
			missing = append(missing, "no "+s.name)
			tell = append(tell, "git config --global "+s.name+" "+s.example)
		}
	}
	return "git has " + strings.Join(missing, " and ") + " here, which commits need: before the next start, " + strings.Join(tell, " and ")
}

// NamedInside is where .git leads inside, where it names a directory outside the tree; "" where a
// sandbox can have none there that its user gets to.
func (r *Repository) NamedInside() string {
	top := path.Dir(r.named) == "/" || within("/home/user", r.named) || within(r.named, "/var/run")
	if !r.Outside || top || within(r.named, Inside) || !mountable(r.named) || strings.ContainsFunc(r.named, unicode.IsControl) {
		return ""
	}
	return r.named
}

// Needed reports whether a sandbox needs a git directory of its own: see WriteTar.
func (r *Repository) Needed() bool { return r.Outside }

// own are the files and directories of a git directory that WriteTar takes: those of one
// worktree, and those that all of them share. What other worktrees and submodules
// have, logs and stashes stay outside.
var (
	own = []string{
		"HEAD", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "MERGE_RR", "AUTO_MERGE", "SQUASH_MSG",
		"CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "COMMIT_EDITMSG", "BISECT_START", "BISECT_LOG", "BISECT_NAMES", "BISECT_TERMS", "BISECT_EXPECTED_REV",
		"index", "config.worktree", "info/sparse-checkout", "rebase-merge", "rebase-apply", "sequencer", "refs/bisect", "refs/worktree",
	}
	common = []string{
		"config", "description", "packed-refs", "shallow", "info/exclude", "info/attributes", "info/grafts", "hooks", "reftable",
		"refs/heads", "refs/tags", "refs/remotes", "refs/notes", "refs/replace",
	}
)

// WriteTar writes a git directory for a sandbox as the directory name of a tar archive: the
// repository's own small files, of its configuration what is kept, and in the place of its
// objects the directory that Mounts has shown. It reads nothing outside the repository: no link leads out of it.
// Its tree is tree: ".." where it is to be in the tree as .git, and else Inside.
func (r *Repository) WriteTar(w io.Writer, name, tree string) error {
	p := &packer{w: tar.NewWriter(w), name: name, tree: tree, made: map[string]bool{}}
	p.dir(".")
	for _, dir := range []string{"objects/pack", "objects/info", "refs/heads", "refs/tags", "info"} {
		p.dir(dir)
	}
	p.file("objects/info/alternates", 0o644, []byte(objectsInside+"\n"))
	p.take(r.GitDir, own)
	p.sharedIndexes(r.GitDir)
	p.take(r.CommonDir, common)
	if p.err == nil {
		p.err = p.w.Close()
	}
	if p.err != nil {
		return fmt.Errorf("copy the git directory %s: %w", r.GitDir, p.err)
	}
	return nil
}

// packer writes an archive. After an error it does nothing.
type packer struct {
	w     *tar.Writer
	name  string
	tree  string          // what its configuration says
	made  map[string]bool // directories and files
	bytes int64
	err   error
}

func (p *packer) header(h *tar.Header) bool {
	if p.err != nil || p.made[h.Name] {
		return false
	}
	p.made[h.Name] = true
	if p.bytes += h.Size; p.bytes > maxCopied || len(p.made) > maxCopiedFiles {
		p.err = fmt.Errorf("it has more than %d MiB or %d files beside its objects: git pack-refs --all makes refs one file", maxCopied>>20, maxCopiedFiles)
		return false
	}
	h.ModTime = time.Unix(0, 0)
	p.err = p.w.WriteHeader(h)
	return p.err == nil
}

func (p *packer) dir(rel string) {
	if up := path.Dir(rel); rel != "." {
		p.dir(up)
	}
	p.header(&tar.Header{Typeflag: tar.TypeDir, Name: path.Join(p.name, rel) + "/", Mode: 0o755})
}

func (p *packer) file(rel string, mode int64, text []byte) {
	p.dir(path.Dir(rel))
	if p.header(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(p.name, rel), Mode: mode, Size: int64(len(text))}) {
		_, p.err = p.w.Write(text)
	}
}

// take writes those of names that dir has, files and whole directories.
func (p *packer) take(dir string, names []string) {
	if p.err != nil {
		return
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		p.err = err
		return
	}
	defer root.Close()
	for _, name := range names {
		err := fs.WalkDir(root.FS(), name, func(rel string, e fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case e.Type().IsRegular() && !strings.HasSuffix(rel, ".lock"):
				p.copy(root, rel)
			}
			return p.err
		})
		if p.err == nil {
			p.err = err
		}
	}
}

// sharedIndexes takes what an index that is split in two has beside it.
func (p *packer) sharedIndexes(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil && p.err == nil {
		p.err = err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "sharedindex.") {
			p.take(dir, []string{e.Name()})
		}
	}
}

func (p *packer) copy(root *os.Root, rel string) {
	f, err := root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return // git has just removed it
	}
	if err != nil {
		p.err = err
		return
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		p.err = err
		return
	}
	if fi.Size() > maxCopied {
		p.err = fmt.Errorf("%s has more than %d MiB", rel, maxCopied>>20)
		return
	}
	text, err := io.ReadAll(io.LimitReader(f, maxCopied))
	if err != nil {
		p.err = err
		return
	}
	if rel == "config" || rel == "config.worktree" {
		if text, p.err = forSandbox(string(text), p.tree); p.err != nil {
			return
		}
	}
	mode := int64(0o644)
	if fi.Mode()&0o100 != 0 {
		mode = 0o755
	}
	p.file(rel, mode, text)
}
