package image

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/image/layer"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// roleUnpack is the name by which this binary is executed again to unpack.
const roleUnpack = "carboy-box-unpack"

// Roles are those of this package.
func Roles() role.Table {
	return role.Table{roleUnpack: func() error { return unpackMain(os.Stdin, os.Stdout) }}
}

// Use has a store unpack and remove layers by roles that own the ids of a
// rootless instance, where this process is not root: the files are theirs then.
func (o *Options) Use(roles *role.Runner) {
	if !roles.Rootless() {
		return
	}
	o.UserXattr = true
	o.Remove = func(dir string) error { return roles.Delete(context.Background(), dir) }
	o.Stands = func(ctx context.Context, trees []string) (bool, error) {
		var answer unpacked
		if err := roles.Ask(ctx, roleUnpack, unpackOrder{Below: trees}, &answer, nil); err != nil {
			return false, fmt.Errorf("look at layers: %w", err)
		}
		return answer.Stands, nil
	}
	o.Unpack = func(ctx context.Context, r io.Reader, dir string, below []string) (layer.Result, error) {
		var answer unpacked
		if err := roles.Ask(ctx, roleUnpack, unpackOrder{Dir: dir, Below: below}, &answer, r); err != nil {
			return layer.Result{}, fmt.Errorf("unpack a layer: %w", err)
		}
		if answer.Refused != "" {
			return layer.Result{}, sandbox.Errorf(sandbox.Invalid, "%s", answer.Refused).WithHint("%s", answer.Hint)
		}
		return answer.Result, nil
	}
}

type unpackOrder struct {
	Dir   string   `json:"dir,omitempty"` // where to; "": to say whether the trees stand as they are
	Below []string `json:"below,omitempty"`
}

// unpacked is what the role answers.
type unpacked struct {
	Result  layer.Result `json:"result"`
	Refused string       `json:"refused,omitempty"` // why the layer is no good
	Hint    string       `json:"hint,omitempty"`
	Stands  bool         `json:"stands,omitempty"`
}

// unpackMain reads an order and a layer, and unpacks it. An order without a directory has no layer.
func unpackMain(in io.Reader, out io.Writer) error {
	r := bufio.NewReaderSize(in, 1<<16)
	line, err := r.ReadString('\n')
	if err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	var o unpackOrder
	if err := json.NewDecoder(strings.NewReader(line)).Decode(&o); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if os.Geteuid() != 0 {
		if err := role.BecomeRoot(); err != nil {
			return err
		}
	}
	var answer unpacked
	opts := layer.Options{UserXattr: true}
	if o.Dir == "" {
		answer.Stands, err = layer.Stands(context.Background(), o.Below, opts)
	} else {
		opts.Below = o.Below
		answer.Result, err = layer.Unpack(context.Background(), r, o.Dir, opts)
	}
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind == sandbox.Invalid {
		answer.Refused, answer.Hint, err = e.Msg, e.Hint, nil
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}
