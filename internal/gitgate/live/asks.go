package live

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/approval/desk"
	"github.com/carboy-sandbox/carboy/internal/gitgate"
	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// revision is that of every question about a push: what may be pushed stays as the create said.
const revision = "git"

// asks has people asked about the pushes of one sandbox. It implements gitgate.Asker.
type asks struct {
	sb    *sandbox.Sandbox
	desk  *desk.Desk
	queue *approval.Queue
	ended atomic.Bool
}

var errEnds = sandbox.Errorf(sandbox.Denied, "a person was asked, and the daemon or the sandbox stops: nothing was pushed; push again later")

// end lets nobody wait for a person any more.
func (a *asks) end() {
	a.ended.Store(true)
	a.queue.Use("", time.Minute, func() {}) // what was asked is void
}

var _ gitgate.Asker = (*asks)(nil)

func newAsks(sb *sandbox.Sandbox, d *desk.Desk) *asks {
	a := &asks{sb: sb, desk: d, queue: approval.NewQueue()}
	a.use(sb)
	return a
}

// use goes by how long the policy of sb lets a person think.
func (a *asks) use(sb *sandbox.Sandbox) {
	p := policy.Policy{}
	if sb.Spec.Policy != nil {
		p = *sb.Spec.Policy
	}
	if set, err := policy.Compile(p, sb.Spec.Secrets); err == nil { // it was looked at
		a.queue.Use(revision, set.AskTimeout(), func() {})
	}
}

// attend shows what is asked to people until ctx ends.
func (a *asks) attend(ctx context.Context) {
	line := a.desk.Pushes(a.sb, func(_ context.Context, ans approval.Answer) error { return a.queue.Answer(ans) })
	defer line.Lost()
	for version := uint64(0); ctx.Err() == nil; {
		seen := a.queue.Look(ctx, version)
		version = seen.Version
		line.Seen(seen)
	}
}

// Ask implements gitgate.Asker.
func (a *asks) Ask(ctx context.Context, q gitgate.Question) (gitgate.Answer, error) {
	about, question, err := a.question(q)
	if err != nil {
		return gitgate.Answer{}, err
	}
	if a.ended.Load() {
		return gitgate.Answer{}, errEnds
	}
	switch out := a.queue.AskPush(ctx, question, about); {
	case a.ended.Load() && !out.State.LetsGo():
		return gitgate.Answer{}, errEnds
	case out.State.LetsGo():
		return gitgate.Answer{Allow: true}, nil
	case out.Full:
		return gitgate.Answer{}, sandbox.Errorf(sandbox.Denied, "a person would have to be asked, and too much waits for one already")
	case out.State == approval.Expired:
		return gitgate.Answer{}, sandbox.Errorf(sandbox.Denied, "a person was asked, and nobody answered in time")
	case out.State == approval.Denied:
		return gitgate.Answer{}, nil
	default:
		return gitgate.Answer{}, sandbox.Errorf(sandbox.Denied, "a person was asked, and the question is void: %s", out.State)
	}
}

// maxSummary bounds what a question says in one line.
const maxSummary = 1500

// question is what people and the queue know of a push.
func (a *asks) question(q gitgate.Question) (*api.ApprovalPush, approval.Question, error) {
	about := &api.ApprovalPush{
		Remote: q.Remote, New: q.Commits, Bytes: q.Bytes, Diff: q.Diff, Cut: q.Cut,
		Updates: []api.PushUpdate{}, Commits: []api.PushCommit{}, Findings: []string{},
	}
	for i := range a.sb.Spec.Remotes {
		if r := &a.sb.Spec.Remotes[i]; r.Name == q.Remote {
			about.URL = r.URL
		}
	}
	for _, u := range q.Shown {
		about.Updates = append(about.Updates, api.PushUpdate(u))
	}
	for _, c := range q.List {
		about.Commits = append(about.Commits, api.PushCommit(c))
	}
	for _, f := range q.Findings {
		about.Findings = append(about.Findings, f.String())
	}
	for _, c := range q.Counts {
		about.More += c.N
	}
	about.More = max(0, about.More-len(q.Findings))
	bound, err := json.Marshal(struct {
		URL     string
		Updates []gitgate.Update
	}{about.URL, q.Updates})
	if err != nil {
		return nil, approval.Question{}, err
	}
	sum := sha256.Sum256(bound)
	about.Digest = hex.EncodeToString(sum[:])
	at, _ := gitremote.Parse(about.URL) // it was looked at
	port, _ := strconv.ParseUint(at.Port, 10, 16)
	return about, approval.Question{
		Kind: approval.Push, Rule: sandbox.RuleRemotes + q.Remote, Revision: revision, Protocol: "git",
		Host: at.Host, Port: uint16(port), Target: q.Remote + ": " + refs(q.Shown), Push: about.Digest,
	}, nil
}

// refs are what a push does, in a line.
func refs(updates []gitgate.Update) string {
	var b strings.Builder
	for i, u := range updates {
		line := u.String()
		if b.Len()+len(line) > maxSummary {
			return fmt.Sprintf("%s and %d more", b.String(), len(updates)-i)
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// EventGit is the type of the events that tell of fetches and pushes.
const EventGit = "git"

// maxNoted is how many findings a line of a sandbox's log has.
const maxNoted = 5

const noteTime = 5 * time.Second

// quietTime is for how long a remote's fetches that end alike are not told again: a log has so many
// lines, and an agent could have those of its pushes pushed out.
const quietTime = time.Minute

// observer writes down what becomes of fetches and pushes.
func (g *Gates) observer(sb *sandbox.Sandbox) func(gitgate.Event) {
	var mu sync.Mutex
	told := map[[3]string]time.Time{}
	return func(e gitgate.Event) {
		if len(e.Updates) == 0 { // a fetch, or a push that came to nothing before it said what it is
			same := [3]string{e.Remote, e.Service, e.Outcome}
			mu.Lock()
			quiet := time.Since(told[same]) < quietTime
			if !quiet {
				told[same] = time.Now()
			}
			mu.Unlock()
			if quiet {
				return
			}
		}
		g.note(sb, e)
	}
}

// note writes what became of a fetch or a push into the sandbox's log.
func (g *Gates) note(sb *sandbox.Sandbox, e gitgate.Event) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.Service, e.Remote)
	if len(e.Updates) > 0 {
		b.WriteString(": " + refs(e.Updates))
	}
	b.WriteString(": " + e.Outcome)
	if e.Why != "" {
		b.WriteString(": " + strings.ReplaceAll(e.Why, "\n", "; "))
	}
	for i, f := range e.Findings {
		if i == maxNoted {
			fmt.Fprintf(&b, "; and %d more", len(e.Findings)-i)
			break
		}
		b.WriteString("; " + f.String())
	}
	fmt.Fprintf(&b, " (%s)", e.Took.Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(context.Background(), noteTime)
	defer cancel()
	g.o.Note(ctx, sb.Owner, sb.ID, sandbox.Event{Type: EventGit, Message: b.String()})
}
