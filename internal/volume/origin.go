package volume

import (
	"context"
	"fmt"
	"io"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/origin"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
)

// fill copies the directory that a volume is to be a copy of into it, while it lies in dir, and says what was not copied.
func (s *Service) fill(ctx context.Context, v Volume, dir string) (skipped []string, err error) {
	t, err := tree.At(dir, v.ID)
	if err != nil {
		return nil, err
	}
	done, err := origin.Fill(ctx, s.o.Roles, origin.Volume{Tree: t, From: v.From})
	switch {
	case err == nil:
	case isFull(err): // the disk of the state, which explain tells of
		return nil, fmt.Errorf("fill it: %w", err)
	case sandbox.KindOf(err) == sandbox.Exhausted:
		return nil, sandbox.Errorf(sandbox.Exhausted, "volume %s: %s is more than it can hold, which is %s", v.Name, v.From.Path, sandbox.SizeText(v.Size)).
			WithHint("--size makes a larger one, --inodes one for more files")
	default:
		return nil, err
	}
	s.log.Info("volume filled", "id", v.ID, "name", v.Name, "files", done.Files, "bytes", done.Bytes, "skipped", int64(len(done.Skipped))+done.More)
	if done.More > 0 {
		done.Skipped = append(done.Skipped, fmt.Sprintf("%d more", done.More))
	}
	return done.Skipped, nil
}

// Changes writes what was changed in a volume since it began as a copy of a directory to w, as sandbox.Backend.Changes does. It
// fails with Conflict where it began empty. What changes meanwhile may be told or not.
func (s *Service) Changes(ctx context.Context, c sandbox.Caller, ref string, o sandbox.ChangesOptions, w io.Writer) error {
	v, at, err := s.originOf(ctx, c, ref)
	if err != nil {
		return err
	}
	if v.From.Ino == 0 {
		return sandbox.Errorf(sandbox.Conflict, "volume %s: it began empty, so there is no directory to compare it with", v.Name).
			WithHint("carboy volume export %s DIR writes all that it has; carboy volume import DIR NAME makes one of a directory", v.Name)
	}
	if err := origin.Changes(ctx, s.o.Roles, at, o, w); err != nil {
		return explain(err, v.Name, "read the changes of")
	}
	return nil
}

// Export writes all that a volume holds to w, as an archive of one directory. What changes meanwhile may be there as it was, or as it is then.
func (s *Service) Export(ctx context.Context, c sandbox.Caller, ref string, w io.Writer) error {
	v, at, err := s.originOf(ctx, c, ref)
	if err != nil {
		return err
	}
	if err := origin.Export(ctx, s.o.Roles, at, w); err != nil {
		return explain(err, v.Name, "export")
	}
	return nil
}

func (s *Service) originOf(ctx context.Context, c sandbox.Caller, ref string) (Volume, origin.Volume, error) {
	v, err := s.Get(ctx, c, ref)
	if err != nil {
		return v, origin.Volume{}, err
	}
	t, err := tree.Find(s.o.State, v.ID)
	return v, origin.Volume{Tree: t, From: v.From}, err
}
