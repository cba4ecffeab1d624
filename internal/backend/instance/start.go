package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Check implements sandbox.Backend. It answers for a caller of this process's
// own user.
func (b *Backend) Check(_ context.Context, spec sandbox.Spec) ([]sandbox.Enforcement, error) {
	return b.report(spec, ourOwner())
}

// Start implements sandbox.Backend. An instance that was suspended goes on.
func (b *Backend) Start(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	if err := checkRoot("/proc"); err != nil {
		return nil, err
	}
	report, err := b.report(sb.Spec, sb.Owner)
	if err = errors.Join(err, checkLink(sb)); err != nil {
		return nil, err
	}
	resume := b.Suspended(sb.ID)
	lay, err := b.start(ctx, sb, resume)
	if err != nil {
		err = b.undo(ctx, sb.ID, err)
		if resume && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", sandbox.ErrMemoryLost, err)
		}
		return nil, err
	}
	if lay.Instead != "" {
		noteInstead(report, lay.Instead)
	}
	if resume {
		err = b.Forget(ctx, sb.ID) // it holds what is outdated from now on
		// What it remembers may be of other limits.
		b.showLimits(ctx, sb.ID, sb.Spec.Limits, &sandbox.Resized{Notes: map[string]string{}})
	}
	return report, err
}

func (b *Backend) start(ctx context.Context, sb *sandbox.Sandbox, resume bool) (*Layout, error) {
	dir, err := b.dir(sb.ID)
	if err != nil {
		return nil, err
	}
	if err := b.loose(ctx, sb.ID, dir); err != nil { // or two would write to one layer
		return nil, err
	}
	lay, cfg, err := b.prepare(ctx, sb)
	if err != nil {
		return nil, err
	}
	lay.Copied = sandbox.CopiedOf(ctx)
	if resume {
		if err := b.resume(lay); err != nil {
			return nil, err
		}
	}
	if err := b.wall.Arrange(sb, lay, cfg); err != nil {
		return nil, err
	}
	oomKills, err := b.enterable(sb, lay, cfg)
	if err != nil {
		return nil, err
	}
	agent, err := b.handOver(ctx, lay, cfg)
	if err != nil {
		return nil, err
	}
	defer agent.Close()
	pids, err := b.wall.Launch(ctx, sb, lay, agent)
	if err != nil {
		return nil, err
	}
	err = b.join(ctx, lay, oomKills, pids)
	if errors.Is(err, errNoUser) {
		err = noUser(sb.Spec.User)
	}
	if e, ok := errors.AsType[*notSoError](err); ok {
		err = sandbox.Errorf(sandbox.Conflict, "sandbox %s: %s", sb.Spec.Name, e).
			WithHint("make again what is missing; carboy inspect %s says what is locked, and carboy pod ls what pods have", sb.Spec.Name)
	}
	return lay, err
}

// join remembers an instance that was launched, and waits for its guest.
func (b *Backend) join(ctx context.Context, lay *Layout, oomKills uint64, pids []int) error {
	ids, err := identify(pids)
	if err != nil {
		return err
	}
	if err := b.note(lay, record{Processes: ids, OOMKills: oomKills}); err != nil {
		return err
	}
	return b.awaitGuest(ctx, lay.ID, ids[0])
}

// noteInstead says in a report by what other means /workspace was made.
func noteInstead(list []sandbox.Enforcement, instead string) {
	for i := range list {
		if list[i].Promise == "filesystem" {
			list[i].Mechanism = privateRoot + instead
		}
	}
}

// undoLimit bounds how long a failed start is cleaned up after.
const undoLimit = 30 * time.Second

// undo ends what a failed start has begun and returns its cause. What an
// earlier run of the instance left on its disk stays: only Remove deletes.
func (b *Backend) undo(ctx context.Context, id string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if err := b.end(ctx, id); err != nil {
		b.opts.Log.Error("end an instance whose start failed", "id", id, "err", err)
	}
	return cause
}

// Warm implements sandbox.Warmer.
func (b *Backend) Warm(ctx context.Context, id string, spec sandbox.Spec, owner string) error {
	_, err := b.Start(ctx, &sandbox.Sandbox{ID: id, Owner: owner, Spec: spec})
	return err
}

// Claim implements sandbox.Warmer: the instance gets sb's environment. Its identity and
// its limits are what it was started with.
func (b *Backend) Claim(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	dir, err := b.dir(sb.ID)
	if err != nil {
		return nil, err
	}
	if err := b.agent(sb.ID).Claim(ctx, guest.Claim{Env: sb.Spec.Env}); err != nil {
		return nil, fmt.Errorf("claim a warm instance: %w", err)
	}
	now := time.Now()
	if err := os.Chtimes(filepath.Join(dir, fileSince), now, now); err != nil {
		return nil, err
	}
	return b.report(sb.Spec, sb.Owner)
}
