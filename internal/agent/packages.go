package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// ErrNotThere is the cause of an error for a directory of the guest that
// is not there.
var ErrNotThere = errors.New("there is no such directory")

// Packages are directories at one place in the guest, tools.SkillsPath, which
// is root's. What follows acts there and nowhere else, as root.

// Replace puts a tar's entries into a new package, owner's, which takes the
// place of the one of that name in one step. What was there gets the name keep,
// or is removed where that is "". Where there is no place for packages, that
// is ErrNotThere.
func (g *Guest) Replace(ctx context.Context, name, owner, keep string, tar io.Reader) error {
	q := url.Values{"name": {name}, "owner": {owner}}
	if keep != "" {
		q.Set("keep", keep)
	}
	return g.packages(ctx, http.MethodPost, q, tar, nil)
}

// Fetch hands a tar of a package to take, without entries of the names of
// except. The tar is a guest's: hostile, and without an end that could be
// relied on. One that take does not read to its end is given up. A package
// that is not there is ErrNotThere.
func (g *Guest) Fetch(ctx context.Context, name string, except []string, take func(tar io.Reader) error) error {
	return g.packages(ctx, http.MethodGet, url.Values{"name": {name}, "except": except}, nil, take)
}

// Remove removes a package. One that is not there is removed already.
func (g *Guest) Remove(ctx context.Context, name string) error {
	return g.packages(ctx, http.MethodDelete, url.Values{"name": {name}}, nil, nil)
}

// Names lists the packages, and what else is there.
func (g *Guest) Names(ctx context.Context) ([]string, error) {
	var list struct {
		Names []string `json:"names"`
	}
	err := g.packages(ctx, http.MethodGet, nil, nil, func(r io.Reader) error {
		if err := json.NewDecoder(io.LimitReader(r, maxAnswer)).Decode(&list); err != nil {
			return fmt.Errorf("%w: %w", ErrBroken, err)
		}
		return nil
	})
	return list.Names, err
}

func (g *Guest) packages(ctx context.Context, method string, q url.Values, body io.Reader, take func(io.Reader) error) error {
	err := g.send(ctx, method, "/carboy/packages?"+q.Encode(), body, take)
	if r, ok := errors.AsType[*Refusal](err); ok && r.notThere {
		return ErrNotThere
	}
	return err
}
