package tool

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// glob answers which names match a pattern.
func (c *call) glob(q *tools.GlobRequest) (res tools.GlobResult, err error) {
	p, err := newPattern(q.Pattern)
	if err != nil {
		return res, err
	}
	rel, abs, err := c.place(q.Path)
	if err != nil {
		return res, err
	}
	var found newest
	w := &walk{ctx: c.ctx, deadline: time.Now().Add(c.s.opts.Budget)}
	w.visit = func(dir int, e dirent, rel string) error {
		if p.match(rel) {
			res.Total++
			found.add(hit{changed(dir, e.name), rel})
		}
		return nil
	}
	err = c.do(func(root int) error {
		fd, err := beneath.Open(root, rel, unix.O_RDONLY|unix.O_DIRECTORY|openFlags)
		if err != nil {
			return notDirectory(abs, err)
		}
		defer unix.Close(fd)
		return explain(abs, w.run(fd))
	})
	if err != nil {
		return res, err
	}
	res.Searched, res.TruncatedBy, res.OK = w.Searched, w.cause, true
	res.Matches = []string{}
	slices.SortFunc(found, func(a, b hit) int { return -a.compare(b) })
	size := 0
	for _, h := range found {
		name, _ := repaired([]byte(join(abs, h.rel)))
		if size += len(name) + 1; size-1 > tools.MaxToolBytes {
			res.TruncatedBy = cmp.Or(res.TruncatedBy, tools.ByBytes)
			break
		}
		res.Matches = append(res.Matches, name)
	}
	if res.Total > len(res.Matches) {
		res.TruncatedBy = cmp.Or(res.TruncatedBy, tools.ByMatches)
	}
	res.Truncated = res.TruncatedBy != ""
	return res, nil
}

// notDirectory explains why a directory could not be opened.
func notDirectory(abs string, err error) error {
	if err == unix.ENOTDIR {
		return failf(tools.ToolInvalid, "path is not a directory: %s", short(abs))
	}
	return explain(abs, err)
}

// changed is when what has a name was changed last, in nanoseconds.
func changed(dir int, name string) int64 {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	return st.Mtim.Nano()
}

// hit is a name that matched.
type hit struct {
	changed int64
	rel     string
}

func (h hit) compare(o hit) int {
	return cmp.Or(cmp.Compare(h.changed, o.changed), cmp.Compare(o.rel, h.rel))
}

// newest keeps the hits that changed last: the oldest of them is the first.
type newest []hit

var _ heap.Interface = (*newest)(nil)

func (n newest) Len() int           { return len(n) }
func (n newest) Less(i, j int) bool { return n[i].compare(n[j]) < 0 }
func (n newest) Swap(i, j int)      { n[i], n[j] = n[j], n[i] }
func (n *newest) Push(x any)        { *n = append(*n, x.(hit)) }

// Pop implements heap.Interface.
func (n *newest) Pop() any {
	last := (*n)[len(*n)-1]
	*n = (*n)[:len(*n)-1]
	return last
}

func (n *newest) add(h hit) {
	if len(*n) < tools.GlobMatches {
		heap.Push(n, h)
		return
	}
	if h.compare((*n)[0]) > 0 {
		(*n)[0] = h
		heap.Fix(n, 0)
	}
}
