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
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func (a *app) inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "inspect [flags] NAME...",
		Short:             "Show a sandbox, and by what means each promise is kept",
		Args:              someArgs(1, "NAME"),
		RunE:              interruptible(a.inspect),
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

func (a *app) inspect(ctx context.Context, names []string) error {
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
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
				printError(a.env.Stderr, failed, a.json)
			}
			failed = err // Main prints the last one
			continue
		}
		done = append(done, one)
		if !a.json && show != nil {
			if err := show(one); err != nil {
				return err
			}
		}
	}
	if a.json {
		if err := writeJSON(a.env.Stdout, done); err != nil {
			return err
		}
	}
	return failed
}

func (a *app) inspectText(sb *api.Sandbox) error {
	now := a.env.Now()
	var t table
	t.row("name", sb.Name)
	t.row("id", sb.ID)
	t.row("owner", sb.Owner)
	t.row("state", stateText(sb))
	if len(sb.Lost) > 0 {
		t.row("lost", strings.Join(sb.Lost, ", "))
	}
	t.row("isolation", isolationText(sb))
	imageRows(&t, sb)
	t.row("user", sb.User)
	t.row("network", sb.Network)
	if len(sb.Secrets) > 0 {
		t.row("secrets", strings.Join(sb.Secrets, ", "))
	}
	if sb.ReadOnlyRoot {
		t.row("root", "read-only")
	}
	t.row("workspace", workspaceLong(sb.Workspace))
	for _, m := range sb.Mounts {
		t.row(mountKind(m), mountText(m))
	}
	t.row("limits", limitsLong(sb.Limits))
	if len(sb.Env) > 0 {
		t.row("env", strings.Join(sb.Env, ", "))
	}
	for _, k := range slices.Sorted(maps.Keys(sb.Labels)) {
		t.row("label", k+"="+sb.Labels[k])
	}
	t.row("created", when(sb.CreatedAt, now))
	if !sb.StartedAt.IsZero() {
		t.row("started", fmt.Sprintf("%s, %s", when(sb.StartedAt, now), count(sb.Starts, "start")))
	}
	if !sb.EndedAt.IsZero() && sb.State != string(sandbox.StateRunning) {
		t.row("ended", when(sb.EndedAt, now))
	}
	if !sb.ExpiresAt.IsZero() {
		t.row("expires", in(sb.ExpiresAt, now))
	}
	if err := t.write(a.env.Stdout); err != nil {
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
func imageRows(t *table, sb *api.Sandbox) {
	t.row("image", sb.Image)
	if sb.ImageDigest != "" {
		t.row("digest", sb.ImageDigest)
	}
	if sb.Snapshot != "" {
		t.row("snapshot", sb.Snapshot)
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
				words[i] = quoteArg(w)
			}
			t.row(r.name, strings.Join(words, " "))
		}
	}
	if len(conf.Env) > 0 {
		t.row("image env", strings.Join(conf.Env, ", "))
	}
	if conf.User != "" {
		t.row("image user", conf.User)
	}
	if conf.WorkingDir != "" {
		t.row("image directory", conf.WorkingDir)
	}
}

func (a *app) enforcedTable(sb *api.Sandbox) error {
	var t table
	t.row("PROMISE", "ENFORCED", "BY")
	for _, e := range sb.Enforced {
		if e.Enforced {
			t.row(e.Promise, "yes", e.Mechanism)
		} else {
			t.row(e.Promise, "no", e.Reason)
		}
	}
	if err := a.printLine(""); err != nil {
		return err
	}
	return t.write(a.env.Stdout)
}

func when(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s)", ago(t, now), t.Local().Format(time.DateTime))
}

func workspaceLong(w api.Workspace) string {
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

func limitsLong(l api.Limits) string {
	return fmt.Sprintf("%s cpus, %s memory, %d processes, %s disk, %d files",
		strconv.FormatFloat(l.CPUs, 'g', -1, 64), formatSize(l.Memory), l.PIDs, formatSize(l.Disk), l.Inodes)
}
