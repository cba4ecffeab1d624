package gitgate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/quarantine/pack"
)

const (
	freshTime   = 5 * time.Second // that a client goes by what it was told
	refreshTime = 30 * time.Minute
	maxBurst    = 60        // refreshes one after the other; on the whole there is one each second
	maxHave     = 2_000     // commits that upstream is told that the mirror has
	maxList     = 128 << 20 // bytes of a list of objects

	maxMirrorPack   = 16 << 30 // bytes that upstream may send at once
	maxMirrorObject = 4 << 30
	maxMeta         = 32 << 20
	maxObjects      = 20_000_000
	maxDepth        = 4096
)

// maxPacks is how many a mirror has before they become one.
var maxPacks = 50

// mirror is what the gate has of one upstream. Its refs are upstream's, as they were when
// it was last asked.
type mirror struct {
	dir string // the repository
	git *jail.Git
	up  upstream

	room func() (int64, error) // for more bytes

	often *rate.Limiter // of how often upstream is asked
	use   sync.RWMutex  // held for reading while a git reads it
	turn  turn          // whose who changes the mirror
	push  turn          // whose who pushes: one after the other
	was   time.Time     // when the last refresh ended; under turn
	known *advert       // what upstream was then; nil before the first; under turn, and never changed
}

func newMirror(dir, git string, up upstream, room func() (int64, error)) (*mirror, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, err
	}
	m := &mirror{dir: dir, git: &jail.Git{Path: git, Dir: dir}, up: up, room: room, turn: newTurn(), push: newTurn(), often: rate.NewLimiter(1, maxBurst)}
	m.git.Read = []string{m.work("in")}
	return m, os.RemoveAll(m.work("push")) // what a killed push left
}

// work is a directory beside the repository.
func (m *mirror) work(name string) string { return filepath.Join(filepath.Dir(m.dir), name) }

// turn is one's at a time.
type turn chan struct{}

func newTurn() turn {
	t := make(turn, 1)
	t <- struct{}{}
	return t
}

// take waits until nobody else has it. It returns how to give it back.
func (t turn) take(ctx context.Context) (give func(), err error) {
	select {
	case <-t:
		return func() { t <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// current refreshes the mirror, and returns what upstream was then. The mirror keeps all
// objects of that until done is called.
func (m *mirror) current(ctx context.Context, told bool) (a *advert, done func(), err error) {
	give, err := m.turn.take(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer give()
	if err := m.refresh(ctx, told); err != nil {
		return nil, nil, err
	}
	m.use.RLock()
	return m.known, m.use.RUnlock, nil
}

// outdated has the next refresh ask upstream.
func (m *mirror) outdated(ctx context.Context) {
	if give, err := m.turn.take(ctx); err == nil {
		m.was = time.Time{}
		give()
	}
}

// refresh makes the mirror what upstream is now. For a client that has just been told
// upstream's refs, a moment ago will do. Whoever calls has the turn.
func (m *mirror) refresh(ctx context.Context, told bool) error {
	if told && m.known != nil && time.Since(m.was) < freshTime {
		return nil
	}
	if err := m.often.Wait(ctx); err != nil {
		return errors.New("it is asked for too often")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, refreshTime, errors.New("upstream takes too long"))
	defer cancel()
	c, err := m.up.open(ctx, uploadPack)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // all that was wanted was read
	a := c.advert()
	if err := m.furnish(a.format); err != nil {
		return err
	}
	want, err := m.missing(ctx, slices.Collect(maps.Values(a.refs)))
	if err != nil {
		return err
	}
	if len(want) > 0 {
		if err := m.bring(ctx, c, want); err != nil {
			return err
		}
	}
	if err := m.write(a); err != nil {
		return err
	}
	m.known, m.was = a, time.Now()
	m.tidy(ctx)
	return nil
}

// furnish makes the repository where there is none.
func (m *mirror) furnish(f pack.Format) error {
	if m.known != nil && m.known.format != f {
		return errors.New("upstream names its objects otherwise than before")
	}
	for _, dir := range []string{m.work("in"), m.work("out")} { // what a killed refresh left
		if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
			return err
		}
	}
	return furnish(m.dir, f, "")
}

// furnish makes a bare repository of no refs, or leaves the one that is there. It borrows
// the objects of another.
func furnish(dir string, f pack.Format, borrow string) error {
	config := "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
	if f == pack.SHA256 {
		config = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n"
	}
	config += "[uploadpack]\n\tallowFilter = true\n\tallowAnySHA1InWant = true\n\tkeepAlive = 5\n[pack]\n\tthreads = 1\n\twriteReverseIndex = false\n"
	for _, d := range []string{"", "refs", "objects", "objects/info", "objects/pack"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	files := map[string]string{"config": config}
	if _, err := os.Lstat(filepath.Join(dir, "HEAD")); errors.Is(err, fs.ErrNotExist) {
		files["HEAD"] = "ref: refs/heads/main\n"
	}
	if borrow != "" {
		files["objects/info/alternates"] = borrow + "\n"
	}
	for name, text := range files {
		to := filepath.Join(dir, name)
		if is, err := os.ReadFile(to); err == nil && string(is) == text {
			continue // a git may read it
		}
		if err := durable.Write(to, []byte(text), durable.Options{}); err != nil {
			return err
		}
	}
	return nil
}

// missing returns those of ids that the mirror does not have, each once.
func (m *mirror) missing(ctx context.Context, ids []string) ([]string, error) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return nil, nil
	}
	out, err := m.git.Output(ctx, strings.NewReader(strings.Join(ids, "\n")+"\n"), maxList, "cat-file", "--batch-check=%(objectname)")
	if err != nil {
		return nil, fmt.Errorf("read the mirror: %w", err)
	}
	var lack []string
	for line := range strings.Lines(string(out)) {
		if id, ok := strings.CutSuffix(strings.TrimSpace(line), " missing"); ok {
			lack = append(lack, id)
		}
	}
	return lack, nil
}

// write makes the mirror's refs those of upstream: one file, all at once.
func (m *mirror) write(a *advert) error {
	if err := durable.Write(filepath.Join(m.dir, "packed-refs"), packedRefs(a.refs), durable.Options{}); err != nil {
		return err
	}
	if checkRef(a.head) != nil {
		return nil
	}
	return durable.Write(filepath.Join(m.dir, "HEAD"), []byte("ref: "+a.head+"\n"), durable.Options{})
}

// packedRefs is git's file of refs.
func packedRefs(refs map[string]string) []byte {
	b := []byte("# pack-refs with: sorted \n")
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		b = append(b, refs[name]+" "+name+"\n"...)
	}
	return b
}

// tidy makes one pack of many, unless a git reads them. Where it fails, they stay.
func (m *mirror) tidy(ctx context.Context) {
	packs, err := filepath.Glob(filepath.Join(m.dir, "objects/pack/*.pack"))
	if err != nil || len(packs) < maxPacks || len(m.known.refs) == 0 || !m.use.TryLock() {
		return
	}
	defer m.use.Unlock()
	p, err := m.repack(ctx)
	if err != nil {
		return
	}
	for _, old := range packs {
		if filepath.Base(old) != p.name()+".pack" {
			_ = os.Remove(old) // or the next one does
			_ = os.Remove(strings.TrimSuffix(old, ".pack") + ".idx")
		}
	}
}
