package changes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

const (
	// settle is how long nothing more must happen before a change is brought, and
	// settleAtMost how long it waits at most: an editor writes a file in several steps.
	settle       = 50 * time.Millisecond
	settleAtMost = time.Second

	// maxEvents is how many paths are remembered; beyond, everything is looked at.
	maxEvents = 500
)

// watch brings edits until ctx ends. What can't be watched it says once.
func (s *syncer) watch(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", s.sb.Workspace.Source, err)
	}
	defer func() { _ = w.Close() }() // it was only read
	l := &watcher{syncer: s, notify: w, watched: map[string]bool{}}
	if err := l.add(ctx, nil); err != nil {
		return err
	}
	if err := l.bring(ctx, nil); err != nil { // what changed before
		return err
	}
	s.Note(fmt.Sprintf("%s: edits in %s are brought; Ctrl-C ends it", s.sb.Name, s.sb.Workspace.Source))
	return l.run(ctx)
}

// watcher follows a directory.
type watcher struct {
	*syncer
	notify  *fsnotify.Watcher
	watched map[string]bool // directories
	missed  int             // directories that could not be
	told    bool
	said    map[string]string // conflicts that were named
}

// add watches the directories at and below paths that count.
func (l *watcher) add(ctx context.Context, paths []string) error {
	_, filter, err := l.ignored(ctx)
	if err != nil {
		return err
	}
	scan, err := l.base.Scan(ctx, filter, paths)
	if err != nil {
		return err
	}
	for _, dir := range scan.Dirs {
		if l.watched[dir] {
			continue
		}
		switch err := l.notify.Add(filepath.Join(l.sb.Workspace.Source, dir)); {
		case err == nil:
			l.watched[dir] = true
		case !errors.Is(err, fs.ErrNotExist):
			l.missed++
		}
	}
	if l.missed > 0 && !l.told {
		l.told = true
		l.Note(fmt.Sprintf("%s: %d directories can't be watched: the limit is fs.inotify.max_user_watches; carboy sync %s brings edits there", l.sb.Name, l.missed, l.sb.Name))
	}
	return nil
}

// run brings what events tell of, once nothing more happens.
func (l *watcher) run(ctx context.Context) error {
	changed, all := map[string]bool{}, false
	quiet := time.NewTimer(time.Hour)
	defer quiet.Stop()
	var first time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case ev, ok := <-l.notify.Events:
			if !ok {
				return nil
			}
			rel, err := filepath.Rel(l.sb.Workspace.Source, ev.Name)
			if err != nil || rel == ".git" || strings.HasPrefix(rel, "../") {
				continue
			}
			if ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
				delete(l.watched, rel)
			}
			if filepath.Base(rel) == ".gitignore" {
				all, l.rules = true, nil
			}
			all = all || rel == "." || len(changed) >= maxEvents
			changed[rel] = true
			if first.IsZero() {
				first = l.Now()
			}
			quiet.Reset(max(0, min(settle, settleAtMost-l.Now().Sub(first))))
		case err, ok := <-l.notify.Errors:
			if !ok {
				return nil
			}
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch %s: %w", l.sb.Workspace.Source, err)
			}
			all = true
			quiet.Reset(settle)
		case <-quiet.C:
			err := l.settled(ctx, changed, all)
			changed, all, first = map[string]bool{}, false, time.Time{}
			if err != nil {
				return err
			}
		}
	}
}

// settled brings what changed, but for what is ignored.
func (l *watcher) settled(ctx context.Context, changed map[string]bool, all bool) error {
	if all {
		return errors.Join(l.add(ctx, nil), l.bring(ctx, nil))
	}
	_, filter, err := l.ignored(ctx)
	if err != nil {
		return err
	}
	out := workspace.LeavesOut(filter)
	var paths []string
	for p := range changed {
		if !out(p, true) && !out(p, false) && within(p, l.paths) {
			paths = append(paths, p)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	return errors.Join(l.add(ctx, paths), l.bring(ctx, paths))
}

// bring is one pass. What is in conflict is named once, and no end of it.
func (l *watcher) bring(ctx context.Context, paths []string) error {
	res, err := l.pass(ctx, paths)
	if err != nil {
		return err
	}
	fresh := []workspace.SyncConflict{}
	for _, c := range res.Conflicts {
		if l.said[c.Path] != c.Reason {
			fresh = append(fresh, c)
		}
	}
	l.said = map[string]string{}
	for _, c := range res.Conflicts {
		l.said[c.Path] = c.Reason
	}
	res.Conflicts = fresh
	if len(res.Brought)+len(res.Deleted)+len(res.Conflicts) == 0 {
		return nil
	}
	return l.show(res)
}
