package workspace_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// A stream is held to the shape of a moment: what is renamed, deleted or replaced after it is an error, and what is new
// or written to is none.
func TestShape(t *testing.T) {
	for name, tt := range map[string]struct {
		do    func(t *testing.T, view string)
		fails bool
	}{
		"nothing":           {do: func(*testing.T, string) {}}, // the control
		"a-new-file":        {do: func(t *testing.T, v string) { tree{"lib/n": "new", "n": "new"}.write(t, v) }},
		"a-new-one-deleted": {do: func(t *testing.T, v string) { must(t, os.Remove(v+"/new")) }},
		"written-to":        {do: func(t *testing.T, v string) { tree{"lib/a": "new", "new": "more"}.write(t, v) }},
		"one-more-written":  {do: func(t *testing.T, v string) { tree{"other/o": "new"}.write(t, v) }},
		"a-directory-moved": {do: func(t *testing.T, v string) { must(t, os.Rename(v+"/lib", v+"/src")) }, fails: true},
		"a-directory-loose": {do: func(t *testing.T, v string) { must(t, os.Rename(v+"/other", v+"/o")) }, fails: true},
		"a-file-moved":      {do: func(t *testing.T, v string) { must(t, os.Rename(v+"/other/o", v+"/other/z")) }, fails: true},
		"a-file-deleted":    {do: func(t *testing.T, v string) { must(t, os.Remove(v+"/other/o")) }, fails: true},
		"a-directory-is-new": {do: func(t *testing.T, v string) {
			must(t, errors.Join(os.RemoveAll(v+"/other"), os.Mkdir(v+"/other", 0o755)))
		}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			v := newWholeView(t, tree{"src/a": "1", "src/b": "2", "other/o": "3"})
			must(t, os.Rename(v.view+"/src", v.view+"/lib"))
			tree{"new": "n"}.write(t, v.view)
			upper := func() (*os.File, *workspace.Below) { return openDir(t, v.upper), below(v.base) }
			up, low := upper()
			if _, err := workspace.Shape(t.Context(), up, low, nil); !errors.Is(err, workspace.ErrLoose) {
				t.Errorf("the shape of one that is not whole: %v", err)
			}
			must(t, makeWhole(t, v.view, v.upper, v.base))
			up, low = upper()
			shape, err := workspace.Shape(t.Context(), up, low, nil)
			must(t, err)
			tt.do(t, v.view)
			o := wholeOptions("lib/b")
			o.Shape = shape
			up, low = upper()
			err = workspace.WriteChanges(t.Context(), &bytes.Buffer{}, workspace.OverlayUpper(up, low, nil), o)
			if errors.Is(err, workspace.ErrLoose) != tt.fails || err != nil && !tt.fails {
				t.Errorf("the stream: %v", err)
			}
		})
	}
}
