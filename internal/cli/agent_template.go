package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// packaged is the template of an agent's package.
type packaged struct {
	build         *provider.Build
	name, version string
	instead       *provider.Installation // of the program here, which --package-version passes over
}

func (t *packaged) ref() string { return t.name + ":" + t.version }

// choosePackage takes the agent's package, and builds nothing yet.
func (g *agentRun) choosePackage() error {
	if len(g.p.Package.Steps) == 0 {
		return g.p.NoProgram()
	}
	b, err := g.p.Package.Build(g.o.version)
	if err != nil {
		return err
	}
	t := &packaged{build: b, name: "carboy-agent-" + g.p.Name, version: firstOf(g.o.version, g.p.Package.Version)}
	if g.o.version != "" {
		t.instead, _ = g.p.FindProgram(g.out, g.in.Home) // what can't be used is not passed over
	}
	g.packaged, g.program, g.o.spec.Template = t, []string{b.Program}, t.ref()
	return nil
}

// buildPackage builds the template that was chosen, where that was not done before. Of a
// build that fails nothing is left.
func (g *agentRun) buildPackage(ctx context.Context) error {
	t := g.packaged
	if t == nil {
		return nil
	}
	if t.instead != nil {
		g.NoteReason("template", "--package-version: "+g.p.Program+" "+t.version+" of its package is taken, and not "+installedText(t.instead))
	}
	if g.templateReady(ctx, t) {
		return nil
	}
	why := "no " + g.p.Program + " on this machine: "
	if g.o.version != "" {
		why = g.p.Program + " " + t.version + " was not built yet: "
	}
	g.NoteReason("template", why+"a template is built from its package, "+t.version+", once")
	build, err := g.svc.RequestBuild(ctx, api.BuildRequest{Name: t.name, Tags: []string{t.version}})
	if err != nil {
		return err
	}
	if err := g.buildFrom(ctx, *build); err != nil {
		return errors.Join(g.notBuilt(err), g.forget(ctx, build))
	}
	return nil
}

// buildFrom has the template built, and waits for that.
func (g *agentRun) buildFrom(ctx context.Context, build api.BuildRef) error {
	b := g.packaged.build
	plan := api.BuildPlan{FromImage: "base", Policy: &policy.Policy{Presets: b.Presets}}
	if !hasProgram(b.Needs) {
		plan.FromImage = b.Image
	}
	for _, s := range b.Steps {
		plan.Steps = append(plan.Steps, api.BuildStep{Type: "RUN", Args: []string{s, "root"}})
	}
	if err := g.svc.StartBuild(ctx, build, plan); err != nil {
		return notBegun(ctx, g.svc, build, err)
	}
	return g.watchBuild(ctx, g.svc, build)
}

// notBuilt says what could not be built, and what to do instead.
func (g *agentRun) notBuilt(err error) error {
	kind, hint := sandbox.KindOf(err), hintOf(g.p.NoProgram())
	if g.o.version == "" {
		return sandbox.Errorf(kind, "no program %s here, and its template can't be built: %w", g.p.Program, err).WithHint("%s", hint)
	}
	if in := g.packaged.instead; in != nil {
		hint = "without --package-version, " + installedText(in) + " is taken"
	}
	return sandbox.Errorf(kind, "%s %s can't be built from its package: %w", g.p.Program, g.packaged.version, err).WithHint("%s", hint)
}

// forget removes the template where none of its builds has come to anything.
func (g *agentRun) forget(ctx context.Context, failed *api.BuildRef) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	t, err := g.svc.Template(ctx, failed.TemplateID)
	if err != nil || slices.ContainsFunc(t.Builds, func(b api.TemplateBuild) bool { return b.Status != "error" && b.BuildID != failed.BuildID }) {
		return nil //nolint:nilerr // it is gone already
	}
	return g.svc.RemoveTemplate(ctx, failed.TemplateID)
}

// installedText is a program of this machine's, with its version.
func installedText(in *provider.Installation) string {
	if in.Version == "" {
		return in.Path
	}
	return in.Path + ", " + in.Version
}

// templateReady reports whether that version has been built: then its tag leads to a
// build, and can be given to that once more.
func (g *agentRun) templateReady(ctx context.Context, t *packaged) bool {
	_, err := g.svc.TagTemplate(ctx, t.ref(), []string{t.version})
	return err == nil
}

// hasProgram reports whether the machine's own programs, which sandboxes see, have one.
func hasProgram(name string) bool {
	for _, dir := range []string{"/usr/local/bin", "/usr/bin"} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err == nil && fi.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// hintOf is what an error says to do.
func hintOf(err error) string {
	if e, ok := err.(*sandbox.Error); ok { //nolint:errorlint // it is made so
		return e.Hint
	}
	return ""
}
