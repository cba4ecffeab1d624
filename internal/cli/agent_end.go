package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/repository"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

const (
	// endWait bounds what is looked up when an agent has ended.
	endWait = 60 * time.Second
	// maxCommits bounds how many commits are counted.
	maxCommits = 10_000
	// maxBranch bounds how much of a branch's name is shown, in characters.
	maxBranch = 60
	// maxGitSaid bounds what git inside says.
	maxGitSaid = 4 << 10
	// gitMillis bounds how long it takes.
	gitMillis = 60_000
)

// git asks git inside, which may be any program by now: what it says is short, one line,
// and believed of nothing but what is printed.
func (g *agentRun) git(ctx context.Context, id string, args ...string) string {
	argv := append([]string{"git", "-C", repository.Inside, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"}, args...)
	said := excerpt.New(maxGitSaid, 0)
	end, err := g.svc.Exec(ctx, id, client.ExecOptions{Command: &guestv1.Command{Argv: argv, TimeoutMs: gitMillis, Cwd: "/"}, Stdout: said})
	if err != nil || exit.Of(end) != exit.OK {
		return ""
	}
	line, _, _ := strings.Cut(string(said.Excerpt().Head), "\n")
	return strings.TrimSpace(line)
}

// firstLine says what is about to run, on what, and what it may reach.
func (g *agentRun) firstLine() {
	parts := []string{g.programText()}
	if g.plan != nil {
		whose := ""
		if g.plan.OfRepository() {
			whose = ", the repository's,"
		}
		parts[0] = g.plan.Agent + whose + " in " + g.plan.Bottle + ": " + parts[0]
	}
	switch g.sb.Workspace.Mode {
	case string(sandbox.WorkspaceCOW):
		parts = append(parts, g.placeText()+" at /workspace, a copy")
	case string(sandbox.WorkspaceWritable):
		parts = append(parts, g.placeText()+" at /workspace, itself")
	case string(sandbox.WorkspaceReadOnly):
		parts = append(parts, g.placeText()+" at /workspace, read-only")
	}
	reaches := g.grant.Reaches()
	if g.sb.Network != sandbox.NetworkOff && g.sb.Network != "" {
		for _, name := range g.reachesBesides() {
			if !slices.Contains(reaches, name) {
				reaches = append(reaches, name)
			}
		}
		for i := range g.sb.Remotes {
			reaches = append(reaches, "the git remote "+g.sb.Remotes[i].Name)
		}
		if g.sb.Network == sandbox.NetworkOn {
			reaches = append(reaches, "the public internet")
		}
		parts = append(parts, "reaches "+firstOf(strings.Join(reaches, ", "), "nothing"))
	} else {
		parts = append(parts, "reaches nothing")
	}
	switch names := g.sb.Secrets; len(names) {
	case 0:
	case 1:
		parts = append(parts, names[0]+" stays outside")
	default:
		parts = append(parts, strings.Join(names, ", ")+" stay outside")
	}
	g.NoteReason("agent", console.Escape(strings.Join(parts, " · ")))
}

// reachesBesides are the words for what it reaches besides its models.
func (g *agentRun) reachesBesides() (names []string) {
	if g.plan == nil {
		return append(slices.Clone(g.p.Plain.Presets), g.o.spec.Allow...)
	}
	p := g.plan.Create.Policy
	if p == nil {
		return nil
	}
	names = slices.Clone(p.Presets)
	for i := range p.Rules {
		if p.Rules[i].Action == "deny" {
			continue
		}
		for _, host := range p.Rules[i].Hosts {
			if !slices.Contains(names, host) {
				names = append(names, host)
			}
		}
	}
	const most = 6
	if len(names) > most {
		names = append(names[:most:most], "…")
	}
	return names
}

// resumeOf is what is typed to go on with the agent of a sandbox, "" where it has none.
func resumeOf(sb *api.Sandbox) string {
	name := shell.Word(sb.Name)
	switch {
	case sb.Agent == nil:
		return ""
	case sb.Agent.Name != "":
		return "carboy up --resume " + name
	}
	return runCommand(sb.Agent.Provider, " --resume "+name)
}

// placeText is how the directory is called.
func (g *agentRun) placeText() string {
	if g.repo.Is() {
		return "repo"
	}
	return "directory"
}

// programText is the program, with its version and place.
func (g *agentRun) programText() string {
	text, where, version := g.p.Name, "", ""
	switch {
	case g.p.Program == "" && len(g.args) > 0:
		where = g.args[0]
	case g.install != nil:
		where, version = g.install.Path, g.install.Version
	case g.packaged != nil:
		where, version = "built from its package", g.packaged.version
	case len(g.program) > 0:
		where = "the image's " + g.program[0]
	}
	if v := strings.SplitN(version, ".", 3); len(v) >= 2 {
		text += " " + v[0] + "." + v[1]
	}
	return text + " (" + where + ")"
}

// agentIn is the run of the agent that p is, for its last lines; nil where p is no agent, or one
// whose definition is gone.
func (a *app) agentIn(svc *client.Client, sb *api.Sandbox, p *guestv1.Process) *agentRun {
	if sb.Agent == nil || p.GetCommand().GetTag() != mainCommand {
		return nil
	}
	is, err := provider.Find(a.env.AgentsDir, sb.Agent.Provider)
	if err != nil {
		return nil
	}
	g := &agentRun{app: a, p: is, svc: svc, sb: sb, began: time.UnixMilli(int64(p.GetStartedUnixMs()))}
	g.in.Workspace = repository.Inside
	g.grant = g.granted(sb.Secrets)
	return g
}

// lastLines say what the agent did, and what to type next. end is nil where it was left.
func (g *agentRun) lastLines(ctx context.Context, end *guestv1.Exit) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	sb, err := g.svc.Get(ctx, g.sb.ID)
	if err != nil {
		return // it was removed meanwhile, and nothing is left to say
	}
	text := g.p.Name + " was left"
	if end != nil {
		text = fmt.Sprintf("%s ended (%d)", g.p.Name, exit.Of(end))
	}
	parts := []string{text}
	view := sb.Workspace.Mode == string(sandbox.WorkspaceCOW)
	if view {
		parts = append(parts, g.changesText(ctx, sb))
	}
	commits, branch := g.commits(ctx, sb)
	partial := commits > 0 && g.partial(ctx, sb)
	if commits > 0 {
		parts = append(parts, commitsText(commits, branch, partial))
	}
	records := g.records(ctx)
	hint := g.modelHint(records)
	if refused := g.refusedText(records, end != nil && exit.Of(end) != 0, hint != ""); refused != "" {
		parts = append(parts, "refused: "+refused)
	}
	g.NoteReason("ended", console.Escape(strings.Join(parts, " · ")))
	if hint != "" {
		g.NoteReason("model", console.Escape(hint))
	}
	name := shell.Word(sb.Name)
	var next []string
	if view {
		next = append(next, "carboy diff "+name, "carboy apply "+name)
		if commits > 0 && !partial {
			next = append(next, "carboy fetch "+name)
		}
	}
	next = append(next, resumeOf(sb))
	g.NoteReason("next", "next: "+strings.Join(next, " · "))
}

// changesText says how many files were changed, and which are held back.
func (g *agentRun) changesText(ctx context.Context, sb *api.Sandbox) string {
	n, held, err := g.reviewer().Tally(ctx, g.svc, sb)
	if err != nil {
		return "what it changed can't be told: " + err.Error()
	}
	text := "no file changed"
	if n > 0 {
		text = console.Count(n, "file") + " changed"
	}
	if len(held) == 0 {
		return text
	}
	const most = 3
	text += fmt.Sprintf(", %d held back (%s", len(held), strings.Join(held[:min(len(held), most)], ", "))
	if len(held) > most {
		text += ", …"
	}
	return text + ")"
}

// commits counts what was committed since the agent began, on the branch that is
// checked out.
func (g *agentRun) commits(ctx context.Context, sb *api.Sandbox) (n int, branch string) {
	if sb.State != string(sandbox.StateRunning) || g.in.Workspace == "" {
		return 0, ""
	}
	what := "HEAD"
	if sb.Agent != nil && sb.Agent.Base != "" {
		what = sb.Agent.Base + "..HEAD"
	}
	n, err := strconv.Atoi(g.git(ctx, sb.ID, "rev-list", "--count", "--max-count="+strconv.Itoa(maxCommits), what))
	if err != nil || n < 0 || n > maxCommits {
		return 0, ""
	}
	branch = g.git(ctx, sb.ID, "symbolic-ref", "--short", "-q", "HEAD")
	if r := []rune(branch); len(r) > maxBranch {
		branch = string(r[:maxBranch]) + "…"
	}
	return n, branch
}

// partial reports whether the repository is one into which no commits can be taken.
func (g *agentRun) partial(ctx context.Context, sb *api.Sandbox) bool {
	if g.repo == nil { // it was found when the sandbox was made
		repo, err := repository.Find(ctx, sb.Workspace.Source)
		return err == nil && repo.Partial
	}
	return g.repo.Partial
}

func commitsText(n int, branch string, partial bool) string {
	text := console.Count(n, "commit")
	if n == maxCommits {
		text = fmt.Sprintf("%d commits or more", n)
	}
	if branch == "" {
		text += " on no branch"
	} else {
		text += " on " + branch
	}
	if partial {
		text += " (of a partial clone, into which carboy fetch takes none)"
	}
	return text
}
