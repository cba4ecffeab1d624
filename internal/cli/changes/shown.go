package changes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

const (
	shownDir = "shown" // what diffs showed, one file for each sandbox and terminal

	maxShown      = 4 << 20
	maxShownItems = 20_000
	maxShownPaths = 1000
)

// shown is what the last diff of a sandbox showed on this terminal.
type shown struct {
	Time  time.Time          `json:"time"`
	Paths []string           `json:"paths"` // the selection; none: all
	Items []workspace.Digest `json:"items"` // of what was not taken since

	Filter FilterOptions `json:"filter"` // what was left out
}

// shownFile names the file for a sandbox and the caller's terminal, which is
// known by its session's first process. Those whose sessions began outside of a
// container's processes, and have the number 0 within, share one.
func (r *Reviewer) shownFile(id string) string {
	if r.StateDir == "" || !known(id) {
		return ""
	}
	sid, err := unix.Getsid(0)
	if err != nil {
		return ""
	}
	leader, err := procid.Of(sid)
	if err != nil {
		return fmt.Sprintf("%s.%d.json", id, sid) // it has ended, and its number is kept for the session
	}
	return fmt.Sprintf("%s.%d-%d.json", id, sid, leader.StartTime)
}

// rememberShown notes what a diff showed. One of more than can be noted is
// forgotten, with the one before.
func (r *Reviewer) rememberShown(id string, sum workspace.Sum, o FilterOptions) error {
	if len(sum.Items) > maxShownItems || len(sum.Paths) > maxShownPaths {
		sum.Items = nil
	}
	return r.saveShown(id, shown{Time: r.Now().UTC(), Paths: sum.Paths, Items: sum.Items, Filter: o})
}

func (r *Reviewer) saveShown(id string, s shown) error {
	name := r.shownFile(id)
	if name == "" {
		return nil
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return r.writeState(shownDir, name, b)
}

// lastShown returns what the last diff on this terminal showed, nil for none.
func (r *Reviewer) lastShown(id string) (*shown, error) {
	name := r.shownFile(id)
	if name == "" {
		return nil, nil
	}
	b, err := r.readState(shownDir, name, maxShown)
	if err != nil || b == nil {
		return nil, err
	}
	var s shown
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("read what was shown before, of sandbox %s: %w", id, err)
	}
	if len(s.Items) == 0 {
		return nil, nil
	}
	return &s, nil
}

// news returns the paths of d that s was about and did not show as they are.
func (s *shown) news(d *workspace.Diff, sum workspace.Sum, out func(path string, dir bool) bool) []string {
	known := make(map[workspace.Digest]bool, len(s.Items))
	for _, i := range s.Items {
		known[i] = true
	}
	var paths []string
	for i := range d.Items {
		it := &d.Items[i]
		if p := it.Path; !known[sum.Items[i]] && s.covers(p) && !out(p, it.Kind == workspace.Dir || it.Was == workspace.Dir) {
			paths = append(paths, p)
		}
	}
	return paths
}

// covers reports whether p was selected.
func (s *shown) covers(p string) bool {
	return len(s.Paths) == 0 || slices.ContainsFunc(s.Paths, func(sel string) bool {
		return p == sel || strings.HasPrefix(p, sel+"/")
	})
}

// taken notes that items were applied: they are no change any more.
func (r *Reviewer) taken(id string, d *workspace.Diff, applied []workspace.Item) error {
	s, err := r.lastShown(id)
	if err != nil || s == nil || d == nil || len(applied) == 0 {
		return err
	}
	paths := make(map[string]bool, len(applied))
	for i := range applied {
		paths[applied[i].Path] = true
	}
	gone := map[workspace.Digest]bool{}
	for i, one := range d.Sum().Items {
		if paths[d.Items[i].Path] {
			gone[one] = true
		}
	}
	s.Items = slices.DeleteFunc(s.Items, func(i workspace.Digest) bool { return gone[i] })
	return r.saveShown(id, *s)
}

// checkShown says where what is to be applied is not what the last diff on
// this terminal showed. Who can be asked is asked whether to go on.
func (r *Reviewer) checkShown(ctx context.Context, o ApplyOptions, sb subject, d *workspace.Diff, base *workspace.Base) error {
	s, err := r.lastShown(sb.ID)
	if err != nil || s == nil {
		return err
	}
	out := func(string, bool) bool { return false }
	if !s.Filter.same(o.Filter) {
		f, err := r.filter(ctx, base, s.Filter)
		if err != nil {
			return err
		}
		out = workspace.LeavesOut(f)
	}
	paths := s.news(d, d.Sum(), out)
	if len(paths) == 0 {
		return nil
	}
	listed := make([]string, 0, maxHintPaths+1)
	for _, p := range paths[:min(len(paths), maxHintPaths)] {
		listed = append(listed, console.Elide(console.Escape(p), console.MaxInline))
	}
	if len(paths) > maxHintPaths {
		listed = append(listed, "…")
	}
	r.NoteReason("changed", fmt.Sprintf("%s: changed since carboy diff showed it %s: %s", sb.Name, console.Ago(s.Time, r.Now()), strings.Join(listed, ", ")))
	if o.Ask || o.DryRun || r.JSON || !console.IsTerminal(r.Stdin) || !console.IsTerminal(r.Stderr) {
		return nil
	}
	answer, err := r.Prompt(ctx, "take it all the same? [y,N] ")
	if err != nil {
		return err
	}
	if s := strings.ToLower(strings.TrimSpace(answer)); s != "y" && s != "yes" {
		return sandbox.Errorf(sandbox.Denied, "left without a change").WithHint("%s", sb.command("diff", ""))
	}
	return nil
}
