package quarantine

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// Has reports whether the repository has each of these objects, and its refs or its HEAD lead to
// each commit of them: what nothing leads to is soon gone. What is no object's name it has not.
func (r *Repository) Has(ctx context.Context, ids []string) (bool, error) {
	if len(ids) == 0 {
		return true, nil
	}
	if slices.ContainsFunc(ids, func(id string) bool { return !r.isID(id) }) {
		return false, nil
	}
	in := []byte(strings.Join(ids, "\n") + "\n")
	out, err := r.own(ctx, in, "cat-file", "--batch-check=%(objectname)")
	if err == nil && !bytes.Equal(out, in) {
		return false, nil
	}
	if err == nil {
		led := slices.Sorted(maps.Values(r.Refs))
		if r.Head != "" {
			led = append(led, r.Head)
		}
		for _, id := range slices.Compact(led) {
			in = append(in, "^"+id+"\n"...)
		}
		out, err = r.own(ctx, in, "rev-list", "--max-count=1", "--stdin")
	}
	if err != nil {
		return false, sandbox.Errorf(sandbox.KindOf(err), "%s: which commits it has is not known: %w", shell.Word(r.Dir), err)
	}
	return len(out) == 0, nil
}
