package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/changes"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// The kinds of things that take room.
const (
	kindSandboxes = "sandboxes"
	kindImages    = "images"
	kindSnapshots = "snapshots"
	kindVolumes   = "volumes"
	kindBuilds    = "build cache"
)

// kept is one thing that takes room.
type kept struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	Of     string `json:"of,omitempty"`   // of a cache or a home: the directory
	Reason string `json:"kept,omitempty"` // why prune leaves it; "": prune would remove it

	remove func(ctx context.Context) error
}

// room is what the things of one kind take.
type room struct {
	Kind        string `json:"kind"`
	Count       int    `json:"count"`
	InUse       int    `json:"in_use"`
	Bytes       int64  `json:"bytes"`
	Reclaimable int64  `json:"reclaimable"` // of Bytes
}

func (a *app) dfCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "df [flags]",
		Short:             "Show what sandboxes and all that is kept take on disk",
		Args:              exactArgs(),
		RunE:              a.asking(func(ctx context.Context, svc *client.Client, _ []string) error { return a.df(ctx, svc) }),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `Yours is counted, in bytes on this machine's disk. RECLAIMABLE is what nothing uses:
carboy prune says what it would remove of it, and what it leaves. A layer that several
images have counts with each.`,
		examples: []string{"carboy df", "carboy prune"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) df(ctx context.Context, svc *client.Client) error {
	list, err := a.takers(ctx, svc)
	if err != nil {
		return err
	}
	var rooms []room
	for _, kind := range []string{kindSandboxes, kindImages, kindSnapshots, kindVolumes, kindBuilds} {
		r := room{Kind: kind}
		for _, k := range list {
			if k.Kind != kind {
				continue
			}
			r.Count++
			r.Bytes += k.Bytes
			if k.Reason == "" {
				r.Reclaimable += k.Bytes
			} else {
				r.InUse++
			}
		}
		rooms = append(rooms, r)
	}
	if a.JSON {
		return a.WriteJSON(rooms)
	}
	var t console.Table
	t.Row("KIND", "COUNT", "KEPT", "SIZE", "RECLAIMABLE")
	for _, r := range rooms {
		t.Row(r.Kind, fmt.Sprint(r.Count), fmt.Sprint(r.InUse), term.FormatSize(r.Bytes), term.FormatSize(r.Reclaimable))
	}
	return t.Write(a.Stdout)
}

// takers lists what takes room, and of each why it is to stay.
func (a *app) takers(ctx context.Context, svc *client.Client) ([]kept, error) {
	boxes, err := own(ctx, svc)
	if err != nil {
		return nil, err
	}
	var out []kept
	for i := range boxes {
		k, err := a.sandboxTakes(ctx, svc, &boxes[i])
		if err != nil {
			return nil, err
		}
		out = append(out, k)
	}
	all, err := svc.List(ctx, client.ListOptions{}) // a session's uses what it uses, too
	if err != nil {
		return nil, err
	}
	snaps, err := svc.Snapshots(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range snaps {
		if s.Owner != me() {
			continue
		}
		out = append(out, kept{Kind: kindSnapshots, Name: s.ID, Bytes: s.Size, Reason: "snapshots go by name: carboy snapshot rm"})
	}
	images, err := imagesTake(ctx, svc, all, snaps)
	if err != nil {
		return nil, err
	}
	volumes, err := svc.Volumes(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range volumes {
		if v.Owner != me() {
			continue
		}
		out = append(out, volumeTakes(svc, &v))
	}
	builds, err := svc.TemplateCache(ctx)
	if err == nil && builds.Size+builds.FileSize > 0 {
		out = append(out, kept{Kind: kindBuilds, Name: "templates", Bytes: builds.Size + builds.FileSize, Reason: "carboy template gc removes what no template needs"})
	}
	return append(out, images...), nil
}

// sandboxTakes says why a sandbox is to stay: it runs, is paused, or has changes
// that were not taken.
func (a *app) sandboxTakes(ctx context.Context, svc *client.Client, sb *api.Sandbox) (kept, error) {
	held, err := svc.Held(ctx, sb.ID)
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return kept{}, usage.Named(err, sb.ID, sb.Name)
	}
	k := kept{Kind: kindSandboxes, Name: sb.Name, remove: func(ctx context.Context) error { return usage.Named(svc.Remove(ctx, sb.ID, false), sb.ID, sb.Name) }}
	if held != nil {
		k.Bytes = held.Bytes
	}
	switch {
	case sb.State != string(sandbox.StateStopped):
		k.Reason = "it is " + sb.State
	case sb.Suspended:
		k.Reason = "it is paused, and goes on when it is started"
	default:
		switch untaken, err := a.reviewer().Untaken(ctx, svc, sb); {
		case err != nil:
			k.Reason = "whether its changes were taken is not known"
		case untaken == changes.Files:
			k.Reason = "it has changes that were not taken: carboy diff " + sb.Name
		case untaken == changes.Submodules:
			k.Reason = "it has commits of submodules, of which nobody knows whether they were taken"
		case untaken == changes.Commits:
			k.Reason = "it has commits that were not taken: carboy fetch " + sb.Name
		}
	}
	return k, nil
}

// volumeTakes says why a volume is to stay. A cache and a home may go where the directory
// that they are of is gone.
func volumeTakes(svc *client.Client, v *api.Volume) kept {
	k := kept{Kind: kindVolumes, Name: v.Name, Bytes: v.Used, Of: v.CacheOf}
	if v.CacheOf == "" {
		k.Reason = "volumes go by name: carboy volume rm"
		return k
	}
	k.remove = func(ctx context.Context) error { return svc.RemoveVolume(ctx, v.ID) }
	switch {
	case len(v.Sandboxes) > 0:
		k.Reason = "sandbox " + v.Sandboxes[0] + " has it"
	case !isGone(v.CacheOf):
		k.Reason = v.CacheOf + " is there: carboy volume rm " + v.Name + " removes what is kept for it"
	}
	return k
}

// imagesTake says which images nothing of the caller's uses, once each.
func imagesTake(ctx context.Context, svc *client.Client, boxes []api.Sandbox, snaps []api.Snapshot) (out []kept, err error) {
	images, err := svc.Images(ctx)
	if err != nil {
		return nil, err
	}
	counted := map[string]bool{}
	for _, img := range images {
		name := img.Name
		if name == "" {
			name = img.Digest
		}
		k := kept{Kind: kindImages, Name: name, Bytes: img.Size, remove: func(ctx context.Context) error { return svc.RemoveImage(ctx, name) }}
		if counted[img.Digest] { // under another name
			k.Bytes = 0
		}
		counted[img.Digest] = true
		switch {
		case slices.ContainsFunc(boxes, func(sb api.Sandbox) bool { return sb.ImageDigest == img.Digest }):
			k.Reason = "a sandbox uses it"
		case slices.ContainsFunc(snaps, func(s api.Snapshot) bool { return s.ImageDigest == img.Digest }):
			k.Reason = "a snapshot lies over it"
		}
		out = append(out, k)
	}
	return out, nil
}

// pruneFlags are those of prune.
type pruneFlags struct{ stopped, images, homes, force bool }

// command is what prunes the same without asking.
func (f pruneFlags) command() string {
	text := "carboy prune -f"
	for _, kind := range []struct {
		name string
		on   bool
	}{{"stopped", f.stopped}, {"images", f.images}, {"homes", f.homes}} {
		if kind.on {
			text += " --" + kind.name
		}
	}
	return text
}

// wants reports whether things such as k are asked for.
func (f pruneFlags) wants(k *kept) bool {
	switch k.Kind {
	case kindSandboxes:
		return f.stopped || !f.images && !f.homes
	case kindImages:
		return f.images
	case kindVolumes:
		return f.homes && k.Of != ""
	}
	return false
}

func (a *app) pruneCommand() *cobra.Command {
	var f pruneFlags
	cmd := &cobra.Command{
		Use:               "prune [flags]",
		Short:             "Remove what is stopped and what nothing uses, after a list and a question",
		Args:              exactArgs(),
		RunE:              a.asking(func(ctx context.Context, svc *client.Client, _ []string) error { return a.prune(ctx, svc, f) }),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&f.stopped, "stopped", false, "sandboxes that are stopped (default, where no kind is named)")
	cmd.Flags().BoolVar(&f.images, "images", false, "images that none of your sandboxes and snapshots use")
	cmd.Flags().BoolVar(&f.homes, "homes", false, "homes and caches of directories that are gone, which no sandbox has")
	cmd.Flags().BoolVarP(&f.force, "force", "f", false, "without asking")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `What runs, is paused or has changes that were not taken stays, with -f too, and so does
what others own; each that stays is named, with why. Snapshots and volumes go by name
alone, but for what --homes removes: an agent's history, too. A directory that was moved,
or whose disk is not mounted, is gone for it as well: the list names it.`,
		examples: []string{"carboy prune", "carboy prune -f --stopped --images", "carboy prune --homes"},
		exits:    exitDocsPlain[:],
	})
}

// pruned is what prune did.
type pruned struct {
	Removed []kept `json:"removed"`
	Kept    []kept `json:"kept"`
	Bytes   int64  `json:"bytes"` // of what was removed
}

func (a *app) prune(ctx context.Context, svc *client.Client, f pruneFlags) error {
	list, err := a.takers(ctx, svc)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(k kept) bool { return !f.wants(&k) })
	var done pruned
	var doomed []kept
	var t console.Table
	t.Row("KIND", "NAME", "SIZE", "OF")
	for _, k := range list {
		if k.Reason != "" {
			done.Kept = append(done.Kept, k)
			a.NoteReason("kept", k.Name+": kept, "+k.Reason)
			continue
		}
		doomed = append(doomed, k)
		t.Row(k.Kind, k.Name, term.FormatSize(k.Bytes), k.Of)
	}
	if len(doomed) > 0 && !f.force {
		if err := t.Write(a.Stderr); err != nil {
			return err
		}
		if err := a.confirm(ctx, "prune", f.command(), fmt.Sprintf("remove %s?", console.Count(len(doomed), "thing"))); err != nil {
			return err
		}
	}
	failed := done.remove(ctx, doomed)
	if err := a.Answer(done, "removed "+console.Count(len(done.Removed), "thing")+", "+term.FormatSize(done.Bytes)); err != nil {
		return err
	}
	return failed
}

// remove removes a list, all that can be, and returns the first error. What was begun to
// be used meanwhile is refused by the daemon.
func (p *pruned) remove(ctx context.Context, list []kept) (failed error) {
	for _, k := range list {
		if err := k.remove(ctx); err != nil {
			if failed == nil {
				failed = err
			}
			continue
		}
		p.Removed = append(p.Removed, k)
		p.Bytes += k.Bytes
	}
	return failed
}
