package hostimage

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Options say what an image is made of. The zero value is this machine.
type Options struct {
	HostRoot string // default: "/"
	Hostname string // the name that instances have; default: "carboy"
	BootID   string // default: the running kernel's
}

// Root is a finished image. It is shared by all instances and must not be
// written: the wall gives each instance its own copy-on-write layer over it.
type Root struct {
	Dir   string `json:"dir"`   // the skeleton
	Key   string `json:"key"`   // names what it was made from
	Parts []Part `json:"parts"` // directories above others come first
	Masks []Mask `json:"masks"`
	Notes []Note `json:"notes"`
}

// Part is a directory of the host that is seen at Path in the image. The
// mount point is there in the skeleton, or in the part above it.
type Part struct {
	Path   string `json:"path"`   // absolute, inside
	Source string `json:"source"` // absolute, on the host
}

// Mask is a directory inside a part that the wall must cover with an empty
// one.
type Mask struct {
	Path string `json:"path"` // absolute, inside
	Why  string `json:"why"`
}

// Note tells of something that an image lacks or that won't work in it.
type Note struct {
	Path string `json:"path"` // absolute
	Text string `json:"text"`
}

// format changes when the same sources give another skeleton.
const format = "1"

// Skeleton returns the image of this machine, built below cacheDir if nothing
// that was built in this boot matches. Several processes may share cacheDir.
// It fails with Unsupported where the host is laid out in a way that gives no
// working image.
func Skeleton(ctx context.Context, cacheDir string, o Options) (Root, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Root{}, err
	}
	f, err := os.Open(o.HostRoot)
	if err != nil {
		return Root{}, fmt.Errorf("open the host's root: %w", err)
	}
	defer f.Close()
	h := &host{root: f, path: o.HostRoot}
	p, err := h.blueprint(ctx, o)
	if err != nil {
		return Root{}, err
	}
	boot := digest(o.BootID)[:12]
	dir := filepath.Join(cacheDir, "host-"+boot+"-"+p.key)
	if r, err := load(dir, p.key); err == nil {
		return r, nil
	}
	if err := build(ctx, cacheDir, boot, dir, h, p); err != nil {
		return Root{}, fmt.Errorf("build host image: %w", err)
	}
	return load(dir, p.key)
}

func (o Options) withDefaults() (Options, error) {
	if o.HostRoot == "" {
		o.HostRoot = "/"
	}
	if o.Hostname == "" {
		o.Hostname = "carboy"
	}
	if len(o.Hostname) > 63 || strings.IndexFunc(o.Hostname, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	}) >= 0 {
		return o, sandbox.Errorf(sandbox.Invalid, "host name %.70q: want at most 63 of a-z, 0-9 and -", o.Hostname)
	}
	if o.BootID == "" {
		boot, err := procid.BootID()
		if err != nil {
			return o, err
		}
		o.BootID = boot
	}
	return o, nil
}

// blueprint is all that decides what a skeleton is.
type blueprint struct {
	key     string
	sources []source
	files   map[string]string // written anew, by path
	links   map[string]string
	parts   []Part
	masks   []Mask
}

// blueprint looks at the host and reads next to nothing.
func (h *host) blueprint(ctx context.Context, o Options) (*blueprint, error) {
	p := &blueprint{links: map[string]string{}}
	for name, target := range links {
		p.links[name] = target
	}
	if err := h.layout(p); err != nil {
		return nil, err
	}
	var err error
	if p.sources, err = h.sources(ctx); err != nil {
		return nil, err
	}
	passwd, err := h.readText("etc/passwd")
	if err != nil {
		return nil, fmt.Errorf("read system accounts: %w", err)
	}
	group, err := h.readText("etc/group")
	if err != nil {
		return nil, fmt.Errorf("read system groups: %w", err)
	}
	shell := "/bin/sh"
	if unix.Faccessat(int(h.root.Fd()), "usr/bin/bash", unix.X_OK, 0) == nil {
		shell = "/bin/bash"
	}
	p.files = generated(o.Hostname, passwd, group, shell)
	apt, err := h.aptSources()
	if err != nil {
		return nil, fmt.Errorf("read package sources: %w", err)
	}
	if apt != "" {
		p.files["etc/apt/sources.list"] = apt
	}
	p.key = h.keyOf(p, o)
	return p, nil
}

// keyOf digests everything in a blueprint, and when commands were last changed.
func (h *host) keyOf(p *blueprint, o Options) string {
	var b strings.Builder
	fmt.Fprintln(&b, format, o.BootID, os.Geteuid(), p.parts, p.masks)
	for _, m := range []map[string]string{p.files, p.links} {
		for _, k := range sortedKeys(m) {
			fmt.Fprintf(&b, "%q %q\n", k, m[k])
		}
	}
	var stamp []byte
	for i := range p.sources {
		stamp = p.sources[i].stamp(stamp[:0])
		b.Write(stamp)
	}
	for _, d := range commandDirs {
		if fi, err := os.Stat(filepath.Join(h.path, d)); err == nil {
			fmt.Fprintln(&b, d, fi.ModTime().UnixNano())
		}
	}
	return digest(b.String())[:24]
}

func sortedKeys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// load reads what build left.
func load(dir, key string) (Root, error) {
	b, err := os.ReadFile(filepath.Join(dir, "image.json"))
	if err != nil {
		return Root{}, fmt.Errorf("read host image: %w", err)
	}
	var r Root
	if err := json.Unmarshal(b, &r); err != nil {
		return Root{}, fmt.Errorf("read host image: %w", err)
	}
	if r.Key != key {
		return Root{}, fmt.Errorf("read host image: it has the key %.30q", r.Key)
	}
	r.Dir = filepath.Join(dir, "root")
	return r, nil
}

// build makes the image under a name of its own and renames it when it is whole. No disk
// is waited for: the next boot makes its own. Where another process was faster, its
// image stays.
func build(ctx context.Context, cacheDir, boot, dir string, h *host, p *blueprint) (err error) {
	if err := os.MkdirAll(cacheDir, 0o700); err != nil {
		return err
	}
	prune(cacheDir, boot)
	tmp := filepath.Join(cacheDir, ".build-"+boot+"-"+rand.Text())
	if err := errors.Join(os.Mkdir(tmp, 0o755), os.Chmod(tmp, 0o755)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeAll(tmp)) }()
	root := filepath.Join(tmp, "root")
	if err := h.fill(ctx, root, p); err != nil {
		return err
	}
	r := Root{Key: p.key, Parts: p.parts, Masks: p.masks}
	in := &inside{skeleton: root, host: h.path, parts: p.parts}
	if _, err := in.resolve("/bin/sh"); err != nil {
		return &sandbox.Error{
			Kind: sandbox.Unsupported, Err: err,
			Msg: "the host image needs a /bin/sh in /usr, and this machine keeps its programs elsewhere",
		}
	}
	r.Notes = append(h.notes, in.brokenCommands()...)
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "image.json"), b, 0o644); err != nil {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		if _, lerr := load(dir, p.key); lerr == nil {
			return nil
		}
		// Damaged: exchange it, and the deferred removal takes the old one.
		err = unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	}
	return err
}

// removeAll removes what build made; a directory without the right to write
// does not stop root, and nobody else has one here.
func removeAll(dir string) error {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// prune deletes the images of earlier boots, and what a build left that was
// interrupted. Nothing of this boot's images is touched: instances may run on
// one that is no longer the newest.
func prune(cacheDir, boot string) {
	ents, err := os.ReadDir(cacheDir)
	if err != nil {
		return
	}
	for _, e := range ents {
		name := e.Name()
		old := strings.HasPrefix(name, "host-") && !strings.HasPrefix(name, "host-"+boot+"-")
		if strings.HasPrefix(name, ".build-") {
			fi, err := e.Info()
			old = !strings.HasPrefix(name, ".build-"+boot+"-") || err == nil && time.Since(fi.ModTime()) > time.Hour
		}
		if old {
			_ = removeAll(filepath.Join(cacheDir, name))
		}
	}
}

// SearchPath returns the directories of a PATH that are in the image or in
// tools, in their order, then those of tools that are missing, and then the
// usual ones. hidden are those that are in neither.
func (r Root) SearchPath(path string, tools []Tool) (search string, hidden []string) {
	var out []string
	in := func(dir string) bool {
		return slices.ContainsFunc(tools, func(t Tool) bool { return within(t.Path, dir) }) ||
			slices.ContainsFunc(r.Parts, func(p Part) bool { return within(p.Path, dir) }) &&
				!slices.ContainsFunc(r.Masks, func(m Mask) bool { return within(m.Path, dir) })
	}
	add := func(dir string) {
		if !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	usual := []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	for _, d := range filepath.SplitList(path) {
		d = filepath.Clean(d)
		switch {
		case !filepath.IsAbs(d) || slices.Contains(hidden, d):
		case in(d):
			add(d)
		case !slices.Contains(usual, d):
			hidden = append(hidden, d)
		}
	}
	for _, t := range tools {
		for _, d := range t.Search {
			add(d)
		}
	}
	for _, d := range usual {
		add(d)
	}
	return strings.Join(out, ":"), hidden
}
