package instance

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// addSnapshot resolves the snapshot that spec names into layers. It refuses one
// that has something over a directory of the host image that is no part of it
// any more: that would be lost in silence.
func (b *Backend) addSnapshot(ctx context.Context, p *Layout, spec sandbox.Spec) error {
	if spec.Snapshot == "" {
		return nil
	}
	if b.opts.Snapshots == nil {
		return sandbox.Errorf(sandbox.Unsupported, "snapshot %s: there are no snapshots here", spec.Snapshot)
	}
	var err error
	if p.Saved, err = b.opts.Snapshots.Layers(ctx, spec.Snapshot); err != nil {
		return err
	}
	known := []string{layerRoot, layerWorkspace}
	for _, part := range p.Parts {
		known = append(known, partName(part.Path))
	}
	for _, dir := range p.Saved {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if slices.Contains(known, e.Name()) || isEmpty(filepath.Join(dir, e.Name())) {
				continue
			}
			return sandbox.Errorf(sandbox.Unsupported, "snapshot %s: it has changes of %s, which this machine's image does not have as it was",
				spec.Snapshot, e.Name()).WithHint("make the snapshot anew, from the image as it is")
		}
	}
	return nil
}

// partName is the name of the layer over a directory of the host image.
func partName(path string) string { return partPrefix + flatName(path) }

// isEmpty reports whether a directory is known to have nothing in it.
func isEmpty(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// saved returns the layers that were saved of one overlay, the lowest first.
// Of a directory with nothing in it only the topmost counts, for its mode.
func (c *composer) saved(name string) ([]string, error) {
	switch name {
	case layerOver:
		name = layerWorkspace
	case layerWorkspace:
		return nil, nil // a view of the host's tree
	}
	var list []string
	for _, dir := range slices.Backward(c.layout.Saved) {
		l := filepath.Join(dir, name)
		_, err := os.Lstat(l)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case len(list) == 0 || !isEmpty(l):
			list = append(list, l)
		}
	}
	slices.Reverse(list)
	return list, nil
}
