package bottle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/repository"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// EventSetUp is the type of the events that tell of steps.
const EventSetUp = "setup"

// Runner sets sandboxes up for one caller.
type Runner struct {
	// Open opens a file of the host's with the caller's rights.
	Open func(name string) (*os.File, error)
	// Skill writes the files of one of the caller's skills as a tar archive.
	Skill func(ctx context.Context, name string, w io.Writer) error
	// Told, if any, is told of each step: as it begins, and as it has ended. It must not
	// block.
	Told func(api.SetUpStep)
	// Pause is the time before what was lost is tried again; nil: provider.Pause.
	Pause func(context.Context) error
	Now   func() time.Time // nil: time.Now
}

// work is one set-up.
type work struct {
	*Runner
	s     *api.SetUp
	p     *provider.Provider
	sb    *sandbox.Sandbox
	note  func(sandbox.Event)
	guest guest
	pr    *provider.Provisioner
	in    provider.Inside
	said  string // of the step that is done, for whoever looks
	is    *sandbox.Agent
}

// SetUp does s in a sandbox, once s was looked at.
func (r *Runner) SetUp(s *api.SetUp) (sandbox.SetUp, error) {
	p, err := check(s)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, sb *sandbox.Sandbox, dial func(context.Context) (net.Conn, error), note func(sandbox.Event)) (*sandbox.Agent, error) {
		g := agent.New(dial)
		defer g.Close()
		w := &work{Runner: r, s: s, p: p, sb: sb, note: note, guest: guest{g}, is: AgentOf(s)}
		if was := sb.Spec.Agent; was != nil { // what is found out once
			w.is.Base, w.is.Authority, w.is.Prompt = was.Base, was.Authority, was.Prompt
		}
		w.pr = &provider.Provisioner{Guest: w.guest, Mended: w.mended, Step: w.step, Pause: r.Pause}
		if err := w.run(ctx); err != nil {
			return nil, err
		}
		return w.is, nil
	}, nil
}

// AgentOf is what is known of the agent before anything is done.
func AgentOf(s *api.SetUp) *sandbox.Agent {
	return &sandbox.Agent{
		Name: s.Agent.Name, Bottle: s.Agent.Bottle, Digest: s.Agent.Digest,
		Provider: s.Agent.Provider, Program: s.Agent.Program, Dir: s.Agent.Dir,
	}
}

func (w *work) run(ctx context.Context) error {
	w.inside()
	for _, st := range Steps(w.s, w.sb.Link != nil) {
		if st.Do == DoProvider {
			if err := w.provide(ctx); err != nil {
				return &ProviderError{err}
			}
			continue
		}
		err := w.step(ctx, st.Do, st.What, func(ctx context.Context) error { return w.do(ctx, st) })
		switch {
		case err != nil && st.Do == DoSkill: // it goes into the provider's own directory
			return &ProviderError{err}
		case err != nil:
			return err
		}
	}
	var err error
	w.is.Command, err = w.p.Argv(w.s.Agent.Program, &w.in, provider.Start{Resume: w.s.Resume, Remote: w.s.Remote, Prompt: w.in.PromptFile}, w.s.Args)
	switch {
	case err != nil:
		return sandbox.Errorf(sandbox.Invalid, "agent %s: %w", w.p.Name, err)
	case w.s.Start == nil:
		return nil
	}
	return w.step(ctx, DoStart, w.s.Agent.Provider, w.start)
}

// ProviderError is the error of a step of the provider's own, whose home may be what is amiss.
type ProviderError struct{ err error }

// Error is the error's own text.
func (e *ProviderError) Error() string { return e.err.Error() }

// Unwrap is the error.
func (e *ProviderError) Unwrap() error { return e.err }

// inside is what the provider's texts know, before anything runs.
func (w *work) inside() {
	w.in = provider.Inside{
		Home: Home(w.sb.Spec.User), Workspace: repository.Inside, Dir: w.s.Agent.Dir, Program: w.s.Agent.Program,
		Env: w.sb.Spec.Env, Bypass: w.s.Bypass, Facts: w.s.Facts,
	}
	for i := range w.p.Access.Ways {
		for _, name := range w.s.Ways {
			if way := &w.p.Access.Ways[i]; way.Name == name {
				w.in.Ways = append(w.in.Ways, way)
			}
		}
	}
	if w.s.Prompt != "" {
		w.is.Prompt = PromptFile(w.in.Home)
	}
	// A first task is not given again.
	if w.s.Prompt != "" || w.s.Resume && w.is.Name != "" && w.p.Run.PromptMode == provider.AppendFile {
		w.in.PromptFile = w.is.Prompt
	}
}

// provide does what the provider needs, and what its texts say.
func (w *work) provide(ctx context.Context) (err error) {
	if w.in.Placeholders, err = w.pr.Placeholders(ctx, w.sb.Spec.Secrets); err != nil {
		return err
	}
	plan, err := w.p.Plan(&w.in)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "agent %s: %w", w.p.Name, err)
	}
	return w.pr.Apply(ctx, plan)
}

// step does one step in its time, and tells of it.
func (w *work) step(ctx context.Context, do, what string, f func(context.Context) error) error {
	now := w.Now
	if now == nil {
		now = time.Now
	}
	told := w.Told
	if told == nil {
		told = func(api.SetUpStep) {}
	}
	what = bounded(what)
	told(api.SetUpStep{Do: do, What: what})
	limit := limitOf(do)
	late := sandbox.Errorf(sandbox.Unavailable, "%s: %s took longer than %v", do, what, limit)
	limited, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	begun := now()
	w.said = ""
	err := f(limited)
	if err != nil {
		if ctx.Err() == nil && limited.Err() != nil {
			return late
		}
		return err
	}
	took := now().Sub(begun)
	told(api.SetUpStep{Do: do, What: what, Done: true, Millis: took.Milliseconds(), Note: w.said})
	text := fmt.Sprintf("%s: %s (%d ms)", do, what, took.Milliseconds())
	if w.said != "" {
		text += ": " + w.said
	}
	w.note(sandbox.Event{Type: EventSetUp, Message: text})
	return nil
}

// maxWhat bounds what is said of a step, in bytes.
const maxWhat = 200

func bounded(s string) string {
	if r := []rune(s); len(r) > maxWhat {
		return string(r[:maxWhat]) + "…"
	}
	return s
}

func (w *work) mended(file string) {
	if w.Told != nil {
		w.Told(api.SetUpStep{Do: "mended", What: file, Mended: file})
	}
}

// check looks at what was sent.
func check(s *api.SetUp) (*provider.Provider, error) {
	p, err := provider.Read(s.Agent.Provider, []byte(s.Definition))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "setup: definition: %w", err)
	}
	for _, problem := range []struct {
		is  bool
		say string
	}{
		{len(s.Skills) > maxSkills || len(s.Copies) > maxCopies || len(s.Files) > maxFiles || len(s.Args) > maxArgs, "too many skills, copies, files or arguments"},
		{len(s.Skills) > 0 && p.Config.Skills == "", p.Name + " takes no skills"},
		{s.Prompt != "" && p.Run.PromptMode == "", p.Name + " takes no prompt"},
		{len(s.Prompt) > maxPrompt, "prompt: larger than 1 MiB"},
		{s.Remote && len(p.Run.Remote) == 0, p.Name + " can't be led from elsewhere"},
	} {
		if problem.is {
			return nil, sandbox.Errorf(sandbox.Invalid, "setup: %s", problem.say)
		}
	}
	return p, checkAgent(s)
}

// Bounds of a set-up.
const (
	maxSkills = 64
	maxCopies = 16
	maxFiles  = 64
	maxArgs   = 4096
	maxPrompt = 1 << 20
	// Of what is remembered, in bytes: of the command line, and of all else.
	maxCommand = 256 << 10
	maxText    = 4096
)

// checkAgent bounds what is remembered.
func checkAgent(s *api.SetUp) error {
	a := &s.Agent
	if a.Base+a.Prompt+a.Authority != "" || a.Command != nil {
		return sandbox.Errorf(sandbox.Invalid, "setup: agent: base, prompt, command and authority are found out")
	}
	if len(a.Name)+len(a.Bottle)+len(a.Digest)+len(a.Dir)+length(a.Program) > maxText {
		return sandbox.Errorf(sandbox.Invalid, "setup: agent: its texts are longer than %d bytes together", maxText)
	}
	if length(s.Args) > maxCommand {
		return sandbox.Errorf(sandbox.Invalid, "setup: args: longer than %d KiB together", maxCommand>>10).
			WithHint("what is long can be a file, such as the prompt")
	}
	return nil
}

func length(words []string) (n int) {
	for _, word := range words {
		n += len(word)
	}
	return n
}

// errNoFile is that a file of the host's can't be had.
func errNoFile(name string, err error) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return e
	}
	if p, ok := errors.AsType[*os.PathError](err); ok {
		err = p.Err
	}
	return sandbox.Errorf(sandbox.Invalid, "%.256q: %w", name, err)
}
