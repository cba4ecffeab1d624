package gvisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/cgroup"
	"github.com/carboy-sandbox/carboy/internal/disk"
	"github.com/carboy-sandbox/carboy/internal/guestbin"
	"github.com/carboy-sandbox/carboy/internal/procid"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The wall's own needs, on top of what a box was promised.
const (
	// wallMemory is what sentry, gofer and the guest kernel's tables take
	// beside the guest's own memory: measured at 40 to 90 MiB under load.
	wallMemory = 128 << 20
	// wallPIDs bounds the wall's threads on the host: each guest thread
	// takes one or two. The guest's own limit is kept inside.
	wallPIDs = 512
)

// cgroupNamespace keeps the groups of two homes apart.
func cgroupNamespace(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:8])
}

// installAgent puts the embedded guest agent where boxes can show it, under a
// name that tells its content.
func installAgent(cache string) (string, error) {
	bin, err := guestbin.Binary()
	if err != nil {
		return "", err
	}
	digest, err := guestbin.Digest()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "guest")
	path := filepath.Join(dir, fileAgent+"-"+digest[:16])
	if st, err := os.Stat(path); err == nil && st.Size() == int64(len(bin)) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make cache directory: %w", err)
	}
	tmp, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return "", fmt.Errorf("install guest agent: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(bin)
	if err := errors.Join(err, tmp.Chmod(0o555), tmp.Close(), os.Rename(tmp.Name(), path)); err != nil {
		return "", fmt.Errorf("install guest agent: %w", err)
	}
	return path, nil
}

// limits are what the host enforces for a box.
func limits(l sandbox.Limits) cgroup.Limits {
	return cgroup.Limits{Memory: l.Memory + wallMemory, CPUs: l.CPUs, PIDs: 2*l.PIDs + wallPIDs, OOMTogether: true}
}

// Start implements sandbox.Backend.
func (b *Backend) Start(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	enforced, err := b.report(sb.Spec, sb.Owner)
	if err != nil {
		return nil, err
	}
	dir, err := b.dir(sb.ID)
	if err != nil {
		return nil, err
	}
	p, err := b.prepare(ctx, dir, sb)
	if err != nil {
		return nil, b.undo(ctx, sb.ID, err)
	}
	kills, err := b.enterable(sb, p)
	if err != nil {
		return nil, b.undo(ctx, sb.ID, err)
	}
	pids, err := b.launch(ctx, p)
	if err != nil {
		return nil, b.undo(ctx, sb.ID, err)
	}
	bx, err := identify(pids)
	if err != nil {
		return nil, b.undo(ctx, sb.ID, err)
	}
	bx.OOMKills = kills
	if err := bx.write(dir); err != nil {
		return nil, b.undo(ctx, sb.ID, err)
	}
	if err := b.awaitGuest(ctx, sb.ID, bx.Sentry); err != nil {
		return nil, b.undo(ctx, sb.ID, err)
	}
	if pids.Copied {
		noteCopy(enforced)
	}
	return enforced, nil
}

// enterable makes the box's cgroup and puts into the plan how to enter it. A
// machine without usable cgroups was reported, and nothing was promised of
// them. The count of out-of-memory kills so far is 0 where it can't be read:
// then no end is called out of memory.
func (b *Backend) enterable(sb *sandbox.Sandbox, p *plan) (oomKills uint64, err error) {
	group, err := b.cgroups.Create(sb.ID, limits(sb.Spec.Limits))
	if sandbox.KindOf(err) == sandbox.Unsupported {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	p.Cgroup = group.ProcsFiles()
	oomKills, _ = group.OOMKills()
	return oomKills, nil
}

// noteCopy says in the report that /workspace is a copy.
func noteCopy(list []sandbox.Enforcement) {
	for i := range list {
		if list[i].Promise == "filesystem" {
			list[i].Mechanism = "private root over the host image, in a mount namespace of its own; " +
				"/workspace is a copy: the file system of the host's tree can't map its owner"
		}
	}
}

// undoLimit bounds how long a failed start is cleaned up after.
const undoLimit = 30 * time.Second

// undo ends what a failed start has begun. What an earlier run of the box
// left on its disk stays: only Remove deletes.
func (b *Backend) undo(ctx context.Context, id string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if err := b.end(ctx, id); err != nil {
		b.opts.Log.Error("end a box whose start failed", "id", id, "err", err)
	}
	return cause
}

// prepare makes the box's directory, disk and configuration.
func (b *Backend) prepare(ctx context.Context, dir string, sb *sandbox.Sandbox) (*plan, error) {
	root, err := b.image(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{
		"", dirControl, dirBundle, dirRunsc, dirLayers, dirMounts,
		filepath.Join(dirMounts, "root"), filepath.Join(dirMounts, "disk"),
	} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("make box directory: %w", err)
		}
	}
	p := &plan{
		ID: sb.ID, Dir: dir, Agent: b.agent, Root: root.Dir, Parts: root.Parts,
		Memory: sb.Spec.Limits.Memory, CPUs: sb.Spec.Limits.CPUs, LogDir: b.opts.DebugDir,
		Rootless: b.rootless != nil,
	}
	for _, m := range root.Masks {
		p.Masks = append(p.Masks, m.Path)
	}
	if p.Disk, err = b.makeDisk(ctx, dir, sb.Spec.Limits); err != nil {
		return nil, err
	}
	if p.Workspace, err = workspaceDir(sb.Spec.Workspace); err != nil {
		return nil, err
	}
	for _, m := range sb.Spec.Mounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		p.Mounts = append(p.Mounts, hostDir(m.Source, mode, m.Target))
	}
	if err := markSince(dir); err != nil {
		return nil, err
	}
	_ = os.Remove(filepath.Join(dir, dirControl, fileSocket))
	return p, writeJSON(filepath.Join(dir, dirControl, fileConfig), agentConfig(sb, root.SearchPath(os.Getenv("PATH"))))
}

// markSince notes, once, when the workspace was made.
func markSince(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, fileSince), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("note the time: %w", err)
	}
	return f.Close()
}

// makeDisk makes the image of what the box writes, unless it stands already
// or this machine has no means.
func (b *Backend) makeDisk(ctx context.Context, dir string, l sandbox.Limits) (string, error) {
	if b.diskErr != nil {
		return "", nil
	}
	path := filepath.Join(dir, fileDisk)
	if _, err := os.Lstat(path); err == nil {
		return path, nil
	}
	size := disk.Size{Bytes: l.Disk, Inodes: l.Inodes}
	if err := b.images.Make(ctx, path, size); err != nil {
		return "", fmt.Errorf("make disk image: %w", err)
	}
	return path, nil
}

// launch runs a launcher over the plan and returns the pids that it answers.
func (b *Backend) launch(ctx context.Context, p *plan) (*launched, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := b.role(ctx, roleLauncher, raw, &out); err != nil {
		return nil, fmt.Errorf("launch box: %w", err)
	}
	var answer launched
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return nil, fmt.Errorf("launch box: read answer: %w", err)
	}
	return &answer, nil
}

// maxRoleError bounds what is kept of a role's last words.
const maxRoleError = 4096

// role executes this binary again in a mount namespace of its own, with an
// empty environment. Without root, that is in a user namespace too.
func (b *Backend) role(ctx context.Context, name string, in []byte, out io.Writer) error {
	cmd := exec.CommandContext(ctx, b.opts.Exe)
	cmd.Args = []string{name}
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	stderr := &tailBuffer{limit: maxRoleError}
	cmd.Stdout, cmd.Stderr = out, stderr
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Setsid: true}
	if b.rootless != nil {
		b.rootless.attributes(cmd.SysProcAttr)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if b.rootless != nil {
		err = b.rootless.mapIDs(cmd.Process.Pid)
	}
	if err == nil { // it waits for its input
		_, err = stdin.Write(in)
	}
	err = errors.Join(err, stdin.Close())
	if werr := cmd.Wait(); werr != nil {
		err = errors.Join(err, roleError(ctx, werr, stderr))
	}
	return err
}

// roleError prefers what the role said to how it exited.
func roleError(ctx context.Context, err error, stderr *tailBuffer) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if msg := strings.TrimSpace(stderr.String()); msg != "" {
		return errors.New(msg)
	}
	return err
}

// identify turns a launcher's pids into identities that outlive this process.
func identify(pids *launched) (*box, error) {
	sentry, err := procid.Of(pids.Sentry)
	if err != nil {
		return nil, fmt.Errorf("find the sentry: %w", err)
	}
	gofer, err := procid.Of(pids.Gofer)
	if err != nil {
		return nil, fmt.Errorf("find the gofer: %w", err)
	}
	return &box{Sentry: sentry, Gofer: gofer}, nil
}
