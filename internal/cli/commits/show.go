package commits

import (
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/quarantine"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

const (
	maxSubjects = 20 // commits of a branch that are listed
	maxHeld     = 5  // files of a kind that are named
	shortID     = 10 // digits
)

// answer is that of fetch --json.
type answer struct {
	Name       string `json:"name"`
	Repository string `json:"repository"`
	*quarantine.Result
}

// show says what came on stdout, and what to do with it on stderr.
func (t *Taker) show(sb *api.Sandbox, repo *quarantine.Repository, res *quarantine.Result) error {
	if t.JSON {
		return t.WriteJSON(answer{sb.Name, repo.Dir, res})
	}
	var merge, warn []*quarantine.Change
	came := false
	for i := range res.Refs {
		c := &res.Refs[i]
		if err := t.showRef(sb.Name, c); err != nil {
			return err
		}
		came = came || c.State != quarantine.Same && c.State != quarantine.Gone
		if len(c.Commits) > 0 && !isTag(c) {
			merge = append(merge, c)
		}
		if len(c.Held) > 0 && (!isTag(c) || !branchAt(res.Refs, c.New)) {
			warn = append(warn, c)
		}
	}
	if !came {
		t.Note(sb.Name + ": no new commits")
		return nil
	}
	for _, c := range warn {
		if err := t.warn(sb.Name, c); err != nil {
			return err
		}
	}
	return t.next(merge)
}

// inside is what a ref is called in the sandbox.
func inside(name string, c *quarantine.Change) string {
	if c.Inside == "" {
		return strings.TrimPrefix(c.Ref, quarantine.Prefix(name))
	}
	return strings.TrimPrefix(strings.TrimPrefix(c.Inside, "refs/heads/"), "refs/")
}

// showRef writes what became of a ref, and its commits.
func (t *Taker) showRef(name string, c *quarantine.Change) error {
	line := inside(name, c) + "  "
	switch c.State {
	case quarantine.Same:
		line += "as it was"
	case quarantine.Gone:
		line += "gone inside; " + c.Ref + " is kept: carboy fetch --prune " + shell.Word(name)
	case quarantine.Pruned:
		line += "gone inside; " + c.Ref + " is removed, it was " + c.Old[:shortID]
	case quarantine.Forced:
		line += t.count(c) + ", rewritten: it was " + c.Old[:shortID] + "  " + c.Ref
	default:
		line += t.count(c) + ", " + string(c.State) + "  " + c.Ref
	}
	if err := t.PrintLine(line); err != nil || isTag(c) {
		return err
	}
	for i, commit := range c.Commits {
		if i == maxSubjects {
			return t.PrintLine("  … and more: git log .." + c.Ref)
		}
		if err := t.PrintLine("  " + commit.ID[:shortID] + " " + console.Elide(commit.Subject, 2*console.MaxInline)); err != nil {
			return err
		}
	}
	return nil
}

// branchAt reports whether a branch that came has a commit.
func branchAt(refs []quarantine.Change, id string) bool {
	return slices.ContainsFunc(refs, func(c quarantine.Change) bool { return !isTag(&c) && c.New == id })
}

// isTag reports whether a ref is a tag's, of whose commits branches tell.
func isTag(c *quarantine.Change) bool { return strings.HasPrefix(c.Inside, "refs/tags/") }

func (t *Taker) count(c *quarantine.Change) string {
	if c.More {
		return "over " + strconv.Itoa(len(c.Commits)) + " commits"
	}
	return console.Count(len(c.Commits), "commit")
}

// warn names what a merge would bring that an apply holds back, and of each kind how much.
func (t *Taker) warn(name string, c *quarantine.Change) error {
	t.Note(inside(name, c) + " changes what carboy apply holds back, and a merge does not:")
	var table console.Table
	for _, kind := range c.HeldKinds {
		shown := 0
		for _, h := range c.Held {
			if h.Why == kind.Why && shown < maxHeld {
				shown++
				table.Row("  "+h.Path, h.Why)
			}
		}
		if kind.Count > shown {
			table.Row("  … and "+strconv.Itoa(kind.Count-shown)+" more", kind.Why)
		}
	}
	return table.Write(t.Stderr)
}

// next says what to type.
func (t *Taker) next(merge []*quarantine.Change) error {
	if len(merge) == 0 {
		return nil
	}
	ref := shell.Word(merge[0].Ref)
	for _, hint := range []string{"look:  git log -p .." + ref, "merge: git merge " + ref, "pick:  git cherry-pick .." + ref} {
		if err := t.Hint(hint); err != nil {
			return err
		}
	}
	return nil
}
