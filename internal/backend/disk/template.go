package disk

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/durable"
)

// maxTemplates bounds the cache: one template takes some hundred KiB.
const maxTemplates = 64

// Images makes image files. Its methods may be called from several goroutines.
type Images struct {
	cache string

	mu      sync.Mutex // held while a template is made
	tool    string     // mke2fs, once it was found
	version string     // what it says of itself
}

// New returns an Images that keeps its templates in cacheDir, which is made
// on first use. Several processes may share it.
func New(cacheDir string) *Images { return &Images{cache: cacheDir} }

// findTool looks for mke2fs.
func findTool() (string, error) { return find("mke2fs") }

// command returns a tool of e2fsprogs with an environment that changes nothing.
func command(ctx context.Context, tool string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, tool, args...)
	c.Env = []string{"MKE2FS_CONFIG=/dev/null", "LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	return c
}

// template opens the template of a size, made first if need be.
func (m *Images) template(ctx context.Context, s Size) (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.findToolLocked(ctx); err != nil {
		return nil, err
	}
	key := sha256.Sum256([]byte(strings.Join(append(s.args(s.Inodes), fmt.Sprint(s.length()), fitVersion, m.version), "\x00")))
	name := filepath.Join(m.cache, "ext4-"+hex.EncodeToString(key[:16])+".img")
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err := m.makeTemplate(ctx, s, name); err != nil {
			return nil, fmt.Errorf("make disk template: %w", err)
		}
		f, err = os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open disk template: %w", err)
	}
	// Its time of change says when it was last used, so that prune can tell.
	if fi, err := f.Stat(); err == nil && time.Since(fi.ModTime()) > time.Hour {
		_ = os.Chtimes(name, time.Time{}, time.Now())
	}
	return f, nil
}

// findToolLocked finds mke2fs and asks its version, once.
func (m *Images) findToolLocked(ctx context.Context) error {
	if m.version != "" {
		return nil
	}
	tool, err := findTool()
	if err != nil {
		return err
	}
	out, err := command(ctx, tool, "-V").CombinedOutput()
	if err != nil {
		return fmt.Errorf("ask the version of %s: %w", tool, err)
	}
	m.tool, m.version = tool, string(out)
	return nil
}

// makeTemplate makes a template under a name of its own and renames it when
// it is whole and on the platter.
func (m *Images) makeTemplate(ctx context.Context, s Size, name string) error {
	if err := os.MkdirAll(m.cache, 0o700); err != nil {
		return err
	}
	dir, err := beneath.OpenDir(m.cache)
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := durable.Create(dir, durable.Options{})
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := m.fit(ctx, f.File, s); err != nil {
		return err
	}
	if err := f.Commit(dir, filepath.Base(name)); err != nil {
		return err
	}
	m.prune(name)
	return nil
}

// prune removes the templates that were not used for longest, where there are
// too many, and what an interrupted process left. A template in use stays
// readable to those who have it open.
func (m *Images) prune(keep string) {
	ents, err := os.ReadDir(m.cache)
	if err != nil {
		return
	}
	var infos []fs.FileInfo
	for _, e := range ents {
		fi, err := e.Info()
		switch {
		case err != nil || filepath.Join(m.cache, e.Name()) == keep:
		case strings.HasPrefix(e.Name(), "ext4-"):
			infos = append(infos, fi)
		case strings.HasPrefix(e.Name(), durable.Prefix) && time.Since(fi.ModTime()) > time.Hour:
			_ = os.Remove(filepath.Join(m.cache, e.Name()))
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return cmp.Compare(b.ModTime().UnixNano(), a.ModTime().UnixNano()) })
	for i := maxTemplates - 1; i < len(infos); i++ {
		_ = os.Remove(filepath.Join(m.cache, infos[i].Name()))
	}
}
