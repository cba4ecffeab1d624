package jail

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// maxIndexSays bounds what git says of a pack that it has no complaint about: its name.
const maxIndexSays = 200

// Index has git make the index of a pack, as out, and look at each of its objects on the
// way; args say how. An index has at most so many bytes. What git could not look at it
// refuses, as an *Error.
//
// Git reads again what it has to look at a second time, such as a .gitmodules that came
// before the tree by which it is one: from a pack beside the index, of its name. One that it
// does not find it only names.
func (g *Git) Index(ctx context.Context, pack, out string, most int64, args ...string) (err error) {
	beside := strings.TrimSuffix(out, ".idx") + ".pack"
	if err := os.Symlink(pack, beside); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(beside)) }()
	said := &Bounded{Limit: maxIndexSays}
	args = append(append([]string{"index-pack", "--threads=1", "--no-rev-index"}, args...), "-o", out, pack)
	err = g.Run(ctx, Work{Out: said, Fill: filepath.Dir(out), Most: most}, args...)
	if said.Over() || err == nil && strings.ContainsAny(strings.TrimSuffix(said.String(), "\n"), "\n ") {
		return &Error{Code: 1, Says: "a .gitmodules or .gitattributes that is not among them"}
	}
	return err
}
