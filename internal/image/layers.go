package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// parallel is how many layers of one image are fetched or unpacked at once.
const parallel = 3

// maxNotes bounds what is kept of what unpacking left out, for one image.
const maxNotes = 200

// layerRecord lies beside a layer's tree.
type layerRecord struct {
	Blob  string   `json:"blob,omitempty"` // the digest of the compressed layer it was made from, where that was checked
	Bytes int64    `json:"bytes"`
	Whole bool     `json:"whole,omitempty"` // it hides all below it
	Notes []string `json:"notes,omitempty"`
}

// source is where a layer comes from.
type source struct {
	// id is the ChainID of the layer and those below it, by which its tree is kept, for that depends
	// on them; "" where only unpacking tells.
	id     string
	below  []string // the ids of those, the lowest first
	diffID string   // of the uncompressed layer; "" where only unpacking tells
	blob   string   // the digest that the content is checked against, or ""
	// open returns the content, checked. A layer that its owner already has is
	// not opened.
	open func(ctx context.Context) (io.ReadCloser, int64, error)
	// used is called when what was opened is needed no more: the layer is there,
	// or can never be. May be nil.
	used func()
}

func (src source) key(owner string) string {
	return hashOf(owner + "\x00" + src.blob + "\x00" + src.id)
}

// chain returns the ChainIDs of layers that lie one over the other, the lowest first, as the OCI's
// image specification has them: that of the lowest is its DiffID.
func chain(diffIDs []string) []string {
	ids := slices.Clone(diffIDs)
	for i := 1; i < len(ids); i++ {
		ids[i] = "sha256:" + hashOf(ids[i-1]+" "+diffIDs[i])
	}
	return ids
}

// chained gives sources, the lowest first, their place over one another.
func chained(srcs []source) []source {
	var diffIDs []string
	for _, src := range srcs {
		diffIDs = append(diffIDs, src.diffID)
	}
	ids := chain(diffIDs)
	for i := range srcs {
		srcs[i].id, srcs[i].below = ids[i], ids[:i:i]
	}
	return srcs
}

func (src source) name() string {
	if src.blob != "" {
		return shorten(src.blob)
	}
	return shorten(src.diffID)
}

// flight is the making of one layer, which others wait for. Once it has
// succeeded it is known for as long as a job that made use of it runs.
type flight struct {
	done  chan struct{}
	err   error
	users int // jobs; guarded by Store.mu
}

// layers makes all of an image's layers, the lowest first. They are fetched side by side, and
// each is unpacked once those below it are.
func (j *job) layers(ctx context.Context, srcs []source) error {
	has, err := j.s.layersOf(j.owner)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	below := make(chan struct{})
	close(below)
	for _, src := range srcs {
		ready, done := below, make(chan struct{})
		below = done
		g.Go(func() error {
			if has[src.id] && exists(j.s.layerDir(src.id)) {
				j.rep.report(src.name(), PhaseDone, 0, 0)
			} else if err := j.layer(ctx, src, ready); err != nil {
				return err
			}
			select {
			case <-ready:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			close(done)
			return nil
		})
	}
	return g.Wait()
}

// layer makes one layer, or waits for another pull that makes the same for the
// same owner. Owners do not wait for each other: each has to show the content. Whoever
// makes one waits for those below it alone, so that none waits for the other's in a circle.
func (j *job) layer(ctx context.Context, src source, below <-chan struct{}) error {
	s, key := j.s, src.key(j.owner)
	for {
		s.mu.Lock()
		f, busy := s.flights[key]
		if !busy {
			f = &flight{done: make(chan struct{})}
			s.flights[key] = f
		}
		s.mu.Unlock()
		if !busy {
			_, f.err = j.makeLayer(ctx, src, below)
			s.mu.Lock()
			if f.err != nil {
				delete(s.flights, key)
			} else {
				j.useLocked(key, f)
			}
			s.mu.Unlock()
			close(f.done)
			return f.err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.done:
		}
		if f.err == nil {
			s.mu.Lock()
			if s.flights[key] == f {
				j.useLocked(key, f)
			}
			s.mu.Unlock()
			j.rep.report(src.name(), PhaseDone, 0, 0)
			return nil
		}
		if context.Cause(ctx) != nil || sandbox.KindOf(f.err) == sandbox.Invalid {
			return f.err
		}
		// It failed for reasons that may be the other's own, a cancelled
		// request or refused credentials: have a try oneself.
	}
}

// useLocked keeps a flight known until the job ends.
func (j *job) useLocked(key string, f *flight) {
	f.users++
	j.flights = append(j.flights, key)
}

// makeLayer opens, unpacks, checks and keeps a layer, once below is closed, and returns its DiffID.
func (j *job) makeLayer(ctx context.Context, src source, below <-chan struct{}) (diffID string, err error) {
	r, size, err := src.open(ctx)
	if err != nil {
		return "", err
	}
	defer func() {
		if src.used != nil && (err == nil || sandbox.KindOf(err) == sandbox.Invalid) {
			src.used()
		}
		r.Close()
	}()
	select {
	case <-below:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	diffID = src.diffID
	if !j.s.madeFrom(src) {
		if diffID, err = j.unpack(ctx, src, r, size); err != nil {
			return "", err
		}
	}
	j.rep.report(src.name(), PhaseDone, size, size)
	return diffID, nil
}

// madeFrom reports whether the layer is there, and was made from the very
// blob that src has.
func (s *Store) madeFrom(src source) bool {
	var rec layerRecord
	return src.blob != "" && src.id != "" &&
		readRecord(filepath.Join(s.layerDir(src.id), "layer.json"), &rec) == nil && rec.Blob == src.blob
}

func (j *job) unpack(ctx context.Context, src source, r io.Reader, size int64) (diffID string, err error) {
	s := j.s
	work, err := os.MkdirTemp(s.tmp, "layer-")
	if err != nil {
		return "", fmt.Errorf("unpack layer: %w", err)
	}
	defer func() {
		if rerr := s.opts.Remove(work); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			s.opts.Log.Warn("removing an unfinished layer", "dir", work, "error", rerr)
		}
	}()
	tree := filepath.Join(work, "fs")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return "", fmt.Errorf("unpack layer: %w", err)
	}
	if err := os.Chmod(tree, 0o755); err != nil { // whatever the umask is
		return "", fmt.Errorf("unpack layer: %w", err)
	}
	counted := &countingReader{r: r, each: func(n int64) { j.rep.report(src.name(), PhaseUnpack, n, size) }}
	_, under, _, err := s.showing(src.below)
	if err != nil {
		return "", err
	}
	res, err := s.opts.Unpack(ctx, counted, tree, under)
	if err != nil {
		return "", err
	}
	if src.diffID != "" && res.DiffID != src.diffID {
		return "", invalid("layer %s: unpacked it has the digest %s, and the image's configuration says %s", src.name(), res.DiffID, src.diffID)
	}
	id := cmp.Or(src.id, res.DiffID)
	j.pin(id)
	rec := layerRecord{Blob: src.blob, Bytes: res.Bytes, Whole: res.RootOpaque, Notes: res.Notes[:min(len(res.Notes), maxNotes)]}
	if err := s.writeRecord("layer-record", filepath.Join(work, "layer.json"), rec); err != nil {
		return "", err
	}
	return res.DiffID, s.keepLayer(work, id)
}

// keepLayer puts a finished layer in its place, unless it is there: somebody
// else was as fast, and it is the same.
func (s *Store) keepLayer(work, id string) error {
	if err := syncFS(work); err != nil {
		return fmt.Errorf("keep layer: %w", err)
	}
	if err := s.opts.Step("layer-rename"); err != nil {
		return err
	}
	err := durable.Rename(work, s.layerDir(id), unix.RENAME_NOREPLACE)
	if errors.Is(err, fs.ErrExist) { // whose name may not be on the disk yet
		err = durable.SyncDir(filepath.Join(s.dir, "layers"))
	}
	if err != nil {
		return fmt.Errorf("keep layer: %w", err)
	}
	return nil
}

// syncFS writes out the file system of dir: a layer has too many files to sync
// one by one.
func syncFS(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return &os.PathError{Op: "sync", Path: dir, Err: err}
	}
	return nil
}

// fill completes a record by what is known of its layers, and leaves out those that show nothing.
func (s *Store) fill(r *imageRecord) error {
	ids, _, recs, err := s.showing(r.Layers)
	if err != nil {
		return err
	}
	r.Layers = ids
	for _, rec := range slices.Backward(recs) {
		r.Size += rec.Bytes
		r.Notes = append(r.Notes, rec.Notes[:min(len(rec.Notes), maxNotes-len(r.Notes))]...)
	}
	return nil
}

// showing returns those of an image's layers, the lowest first, that show anything, with their
// trees and records. What one hides altogether, which no overlay can be told, need not be there.
func (s *Store) showing(all []string) (ids, trees []string, recs []layerRecord, err error) {
	for _, id := range slices.Backward(all) {
		var rec layerRecord
		if err := readRecord(filepath.Join(s.layerDir(id), "layer.json"), &rec); err != nil {
			return nil, nil, nil, fmt.Errorf("look at layers: %w", err)
		}
		ids, trees, recs = append(ids, id), append(trees, s.layerTree(id)), append(recs, rec)
		if rec.Whole {
			break
		}
	}
	slices.Reverse(ids)
	slices.Reverse(trees)
	slices.Reverse(recs)
	return ids, trees, recs, nil
}
