package box

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/image/layer"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Unpack makes the tree of an image's layer in dir as package layer does, by
// a process that owns the ids of a rootless box.
func (h *Host) Unpack(ctx context.Context, r io.Reader, dir string) (layer.Result, error) {
	head, err := json.Marshal(unpackOrder{Dir: dir})
	if err != nil {
		return layer.Result{}, err
	}
	var out bytes.Buffer
	in := io.MultiReader(bytes.NewReader(append(head, '\n')), r)
	if err := h.Run(ctx, roleUnpack, in, &out); err != nil {
		return layer.Result{}, fmt.Errorf("unpack a layer: %w", err)
	}
	var answer unpacked
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return layer.Result{}, fmt.Errorf("unpack a layer: read answer: %w", err)
	}
	if answer.Refused != "" {
		return layer.Result{}, sandbox.Errorf(sandbox.Invalid, "%s", answer.Refused).WithHint("%s", answer.Hint)
	}
	return answer.Result, nil
}

// Delete removes a directory whose files may belong to ids of rootless boxes.
func (h *Host) Delete(dir string) error { return h.removeAll(context.Background(), dir) }

type unpackOrder struct {
	Dir string `json:"dir"`
}

// unpacked is what the role answers.
type unpacked struct {
	Result  layer.Result `json:"result"`
	Refused string       `json:"refused,omitempty"` // why the layer is no good
	Hint    string       `json:"hint,omitempty"`
}

// unpackMain reads an order and a layer, and unpacks it.
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
		if err := BecomeRoot(); err != nil {
			return err
		}
	}
	var answer unpacked
	answer.Result, err = layer.Unpack(context.Background(), r, o.Dir, layer.Options{UserXattr: true})
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind == sandbox.Invalid {
		answer.Refused, answer.Hint, err = e.Msg, e.Hint, nil
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}
