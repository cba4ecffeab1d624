package uninstall

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/role"
)

// Survey is what a home holds, as its directories say: no record is read. Counts are
// 0 where there are none.
type Survey struct {
	Sandboxes int     `json:"sandboxes"`
	Snapshots int     `json:"snapshots"` // of templates, too
	Volumes   int     `json:"volumes"`
	Images    int     `json:"images"`  // names and manifests
	Secrets   bool    `json:"secrets"` // there are some
	Places    []Place `json:"places"`
	// Left are paths that are not carboy's, and stay.
	Left []string `json:"left"`
}

// Place is one of the home's directories.
type Place struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"` // on the disk, of what is to go
	// Unseen says that not all of it could be counted.
	Unseen bool `json:"unseen,omitempty"`
}

// Empty reports whether there is nothing to remove.
func (s Survey) Empty() bool { return len(s.Places) == 0 }

// Survey looks at the home, and changes nothing.
func (h Home) Survey(ctx context.Context, config bool) (Survey, error) {
	s := Survey{Places: []Place{}, Left: []string{}}
	for _, p := range places(h.Dirs, config) {
		names, err := p.list()
		if err != nil {
			return s, err
		}
		got, some := Place{Path: p.dir}, false
		for _, name := range names {
			path := filepath.Join(p.dir, name)
			if !p.owns(name) {
				s.Left = append(s.Left, path)
				continue
			}
			some = true
			n, err := h.measure(ctx, path)
			got.Bytes += n
			got.Unseen = got.Unseen || err != nil
		}
		if some {
			s.Places = append(s.Places, got)
		}
	}
	s.count(h.Dirs.State)
	return s, ctx.Err()
}

func (h Home) measure(ctx context.Context, path string) (int64, error) {
	if h.Roles != nil {
		return h.Roles.Measure(ctx, path)
	}
	return role.MeasureOwn(path)
}

// count counts by the directories that each thing has.
func (s *Survey) count(state string) {
	in := func(prefix string, dir ...string) (n int) {
		entries, _ := os.ReadDir(filepath.Join(append([]string{state}, dir...)...)) // where there is none, nothing is
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), prefix) {
				n++
			}
		}
		return n
	}
	walls, _ := os.ReadDir(filepath.Join(state, "boxes")) // as above
	for _, w := range walls {
		s.Sandboxes += in("sb_", "boxes", w.Name())
	}
	s.Snapshots = in("sn_", "snapshots")
	s.Volumes = in("vol_", "volumes")
	s.Images = in("", "images", "manifests")
	s.Secrets = in("", "secrets") > 0
}
