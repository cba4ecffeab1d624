package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

func (a *app) inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "inspect [flags] NAME...",
		Short:             "Show a sandbox, and by what means each promise is kept",
		Args:              someArgs(1, "NAME"),
		RunE:              a.asking(a.inspect),
		ValidArgsFunction: a.completeName(-1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `The last table has one line for each promise: what enforces it, or why it is not
enforced. The values of variables are never shown.`,
		examples: []string{"carboy inspect web", "carboy inspect --json web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) inspect(ctx context.Context, svc *client.Client, names []string) error {
	return each(a, names, func(name string) (*api.Sandbox, error) { return svc.Get(ctx, name) }, a.inspectText)
}

// each calls f for every name, the failing ones too, and shows what it
// returns: by show one after another, or as one JSON array.
func each[T any](a *app, names []string, f func(string) (T, error), show func(T) error) error {
	done := make([]T, 0, len(names))
	var failed error
	for _, name := range names {
		one, err := f(name)
		if err != nil {
			if failed != nil {
				a.PrintError(failed)
			}
			failed = err // Main prints the last one
			continue
		}
		done = append(done, one)
		if !a.JSON && show != nil {
			if err := show(one); err != nil {
				return err
			}
		}
	}
	if a.JSON {
		if err := a.WriteJSON(done); err != nil {
			return err
		}
	}
	return failed
}

func (a *app) inspectText(sb *api.Sandbox) error {
	now := a.Now()
	var t console.Table
	t.Row("name", sb.Name)
	t.Row("id", sb.ID)
	t.Row("owner", sb.Owner)
	t.Row("state", stateText(sb))
	if sb.DiskBroken != "" {
		t.Row("disk", fmt.Sprintf("broken: %s; carboy stop %[2]s && carboy start %[2]s", sb.DiskBroken, sb.Name))
	}
	if sb.Held != nil {
		t.Row("held", heldText(sb.Held))
	}
	if len(sb.Lost) > 0 {
		t.Row("lost", strings.Join(sb.Lost, ", "))
	}
	t.Row("isolation", isolationText(sb))
	imageRows(&t, sb)
	t.Row("user", sb.User)
	t.Row("network", sb.Network)
	if len(sb.Secrets) > 0 {
		t.Row("secrets", strings.Join(sb.Secrets, ", "))
	}
	for i := range sb.Remotes {
		t.Row("remote", remoteText(&sb.Remotes[i]))
	}
	if sb.ReadOnlyRoot {
		t.Row("root", "read-only")
	}
	t.Row("workspace", workspaceLong(sb))
	for _, m := range sb.Mounts {
		t.Row(mountKind(m), mountText(m))
	}
	for _, p := range sb.Published {
		t.Row("port", portText(p))
	}
	if sb.Socket != "" {
		t.Row("socket", sb.Socket)
	}
	if len(sb.Caches) > 0 {
		t.Row("caches", strings.Join(sb.Caches, ", "))
	}
	t.Row("limits", limitsLong(sb.Limits))
	nextRows(&t, sb)
	if len(sb.Env) > 0 {
		t.Row("env", strings.Join(sb.Env, ", "))
	}
	for _, k := range slices.Sorted(maps.Keys(sb.Labels)) {
		t.Row("label", k+"="+sb.Labels[k])
	}
	if g := sb.Agent; g != nil {
		agentRows(&t, g)
	}
	if p := sb.Project; p != nil {
		t.Row("project", fmt.Sprintf("%s of %.12s: %s", p.File, p.Digest, strings.Join(p.Keys, ", ")))
	}
	t.Row("created", when(sb.CreatedAt, now))
	if !sb.StartedAt.IsZero() {
		t.Row("started", fmt.Sprintf("%s, %s", when(sb.StartedAt, now), console.Count(sb.Starts, "start")))
	}
	if !sb.EndedAt.IsZero() && sb.State != string(sandbox.StateRunning) {
		t.Row("ended", when(sb.EndedAt, now))
	}
	if !sb.ExpiresAt.IsZero() {
		t.Row("expires", console.In(sb.ExpiresAt, now))
	}
	if err := t.Write(a.Stdout); err != nil {
		return err
	}
	return a.enforcedTable(sb)
}

// isolationText is a wall and, where another one was asked for, why it is not
// that.
func isolationText(sb *api.Sandbox) string {
	if sb.IsolationAsked == "" || sb.IsolationAsked == sb.Isolation {
		return sb.Isolation
	}
	return fmt.Sprintf("%s (asked for: %s; %s)", sb.Isolation,
		strings.Join(append([]string{sb.IsolationAsked}, sb.Stronger...), ","), sb.IsolationReason)
}

// imageRows tell what a sandbox was made of, and what that says of commands.
func imageRows(t *console.Table, sb *api.Sandbox) {
	t.Row("image", sb.Image)
	if sb.ImageDigest != "" {
		t.Row("digest", sb.ImageDigest)
	}
	if sb.Snapshot != "" {
		t.Row("snapshot", sb.Snapshot)
	}
	conf := sb.ImageConfig
	if conf == nil {
		return
	}
	for _, r := range []struct {
		name  string
		words []string
	}{{"image entrypoint", conf.Entrypoint}, {"image command", conf.Cmd}} {
		if len(r.words) > 0 {
			words := slices.Clone(r.words)
			for i, w := range words {
				words[i] = shell.Word(w)
			}
			t.Row(r.name, strings.Join(words, " "))
		}
	}
	if len(conf.Env) > 0 {
		t.Row("image env", strings.Join(conf.Env, ", "))
	}
	if conf.User != "" {
		t.Row("image user", conf.User)
	}
	if conf.WorkingDir != "" {
		t.Row("image directory", conf.WorkingDir)
	}
}

func (a *app) enforcedTable(sb *api.Sandbox) error {
	var t console.Table
	t.Row("PROMISE", "ENFORCED", "BY")
	for _, e := range sb.Enforced {
		if e.Enforced {
			t.Row(e.Promise, "yes", e.Mechanism)
		} else {
			t.Row(e.Promise, "no", e.Reason)
		}
	}
	if err := a.PrintLine(""); err != nil {
		return err
	}
	return t.Write(a.Stdout)
}

func when(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s)", console.Ago(t, now), t.Local().Format(time.DateTime))
}

// workspaceLong says what the workspace is, and what of it is locked.
func workspaceLong(sb *api.Sandbox) string {
	text := workspaceKind(sb.Workspace)
	var locked sandbox.AccessList
	for _, a := range sb.Locked {
		locked = append(locked, sandbox.Access(a))
	}
	switch {
	case locked.Whole():
		text += ", locked"
	case len(locked) > 0:
		text += ", locked: " + term.Escape(locked.String())
	}
	return text
}

func workspaceKind(w api.Workspace) string {
	switch sandbox.WorkspaceMode(w.Mode) {
	case sandbox.WorkspaceCOW:
		return w.Source + " (a copy-on-write view)"
	case sandbox.WorkspaceReadOnly:
		return w.Source + " (read-only)"
	case sandbox.WorkspaceWritable:
		return w.Source + " (the tree itself)"
	case sandbox.WorkspacePrivate:
		return "its own"
	case sandbox.WorkspaceVolume:
		if w.ReadOnly {
			return "the volume " + w.Volume + " (read-only)"
		}
		return "the volume " + w.Volume
	}
	return strings.TrimSpace(w.Mode + " " + w.Source)
}

func mountKind(m api.Mount) string {
	if m.Volume != "" {
		return "volume"
	}
	return "mount"
}

func mountText(m api.Mount) string {
	if m.Own {
		return m.Target + " (its own)"
	}
	text := m.Source + m.Volume + ":" + m.Target
	if m.ReadOnly {
		text += ":ro"
	}
	return text
}

// portText is a port on this machine, and why it is not open.
func portText(p api.PublishedPort) string {
	text := fmt.Sprintf("%d at 127.0.0.1:%d", p.Port, p.HostPort)
	switch {
	case p.Open:
		return text
	case p.Reason != "":
		return text + ": not open: " + p.Reason
	}
	return text + ": not open"
}

func limitsLong(l api.Limits) string {
	return fmt.Sprintf("%s cpus, %s memory, %d processes, %s disk, %d files",
		strconv.FormatFloat(l.CPUs, 'g', -1, 64), term.FormatSize(l.Memory), l.PIDs, term.FormatSize(l.Disk), l.Inodes)
}

// agentRows say which agent a sandbox was made for.
func agentRows(t *console.Table, g *api.Agent) {
	text := g.Provider
	if g.Name != "" {
		text = g.Name + " in " + g.Bottle + ", " + g.Provider
	}
	words := make([]string, len(g.Command))
	for i, w := range g.Command {
		words[i] = shell.Word(w)
	}
	t.Row("agent", text+": "+strings.Join(words, " "))
	if g.Authority != "" {
		t.Row("authority", "SHA-256 "+g.Authority)
	}
}
