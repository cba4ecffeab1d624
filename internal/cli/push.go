package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// shownID is how much of an object's name people are shown.
const shownID = 12

func shortID(id string) string { return id[:min(len(id), shownID)] }

// pushLines are what a push is, for who decides, without what it changes.
func pushLines(p *api.ApprovalPush) (lines []string) {
	lines = append(lines, "to "+p.URL, "asked about:")
	for _, f := range p.Findings {
		lines = append(lines, "  "+f)
	}
	if p.More > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", p.More))
	}
	lines = append(lines, "refs:")
	for _, u := range p.Updates {
		switch {
		case u.Old == "":
			lines = append(lines, fmt.Sprintf("  %s is made at %s", u.Ref, shortID(u.New)))
		case u.New == "":
			lines = append(lines, fmt.Sprintf("  %s is removed from %s", u.Ref, shortID(u.Old)))
		default:
			lines = append(lines, fmt.Sprintf("  %s %s..%s", u.Ref, shortID(u.Old), shortID(u.New)))
		}
	}
	if p.New == 0 {
		return lines
	}
	lines = append(lines, fmt.Sprintf("%s, %s:", console.Count(p.New, "commit"), term.FormatSize(p.Bytes)))
	if n := p.New - len(p.Commits); n > 0 {
		lines = append(lines, fmt.Sprintf("  and %d before these", n))
	}
	for _, c := range p.Commits {
		lines = append(lines, fmt.Sprintf("  %s %s: %s", shortID(c.ID), c.Author, c.Subject))
	}
	return lines
}

// printPush prints a push, and what it changes.
func (a *app) printPush(p *api.ApprovalPush) error {
	for _, line := range pushLines(p) {
		if err := a.PrintLine(line); err != nil {
			return err
		}
	}
	if p.Diff == "" {
		return nil
	}
	text := "changes:\n" + strings.TrimRight(p.Diff, "\n") + "\n"
	if p.Cut {
		text += "(there is more, which is not shown)\n"
	}
	_, err := a.Stdout.Write(term.EscapeText([]byte(text)))
	return err
}

// remoteText is a remote of a sandbox's, and where its key is.
func remoteText(r *api.Remote) string {
	text := r.Name + " is " + r.URL
	if key := cmp.Or(r.Key.Name, r.Key.Path); key != "" {
		text += ", by the key " + key + " (" + r.Key.Provider + ")"
	}
	if at, _ := gitremote.Parse(r.URL); at.SSH && len(gitremote.Keys(r.KnownHostKey)) == 0 {
		text += ", refused: no known_host_key"
	}
	return text
}
