package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	controlLimit = 10 * time.Second
	maxAnswer    = 4 << 20
	wantsPause   = 200 * time.Millisecond
)

// client speaks to the gate in dir.
func (one *gate) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return home.Dial(ctx, filepath.Join(one.dir, fileSocket))
		},
	}}
}

// do sends in and reads an answer into out, either of which may be nil.
func (one *gate) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://gate"+path, body)
	if err != nil {
		return err
	}
	resp, err := one.client().Do(req)
	if err != nil {
		return fmt.Errorf("speak to the gate: %w", errors.Unwrap(err))
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("speak to the gate: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the gate: %s", bytes.TrimSpace(raw))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// put sends in, once the gate serves.
func (one *gate) put(ctx context.Context, path string, in any) error {
	if err := one.await(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, controlLimit)
	defer cancel()
	return one.do(ctx, http.MethodPut, path, in, nil)
}

// answerWants gives a gate the secrets that it asks for, until ctx ends: those
// that are made per use, and those that have run out.
func (g *Gates) answerWants(ctx context.Context, one *gate) {
	one.mu.Lock()
	wants := len(one.sb.Spec.Secrets) > 0
	one.mu.Unlock()
	if !wants || one.await(ctx) != nil {
		return
	}
	for ctx.Err() == nil {
		var name string
		if err := one.do(ctx, http.MethodGet, pathWanted, nil, &name); err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(wantsPause):
			}
			continue
		}
		if name == "" { // nothing was wanted for a while
			continue
		}
		if err := one.put(ctx, pathSecrets, g.answer(ctx, one, name)); err != nil && ctx.Err() == nil {
			g.opts.Log.Warn("give a gate a secret", "id", one.id, "secret", name, "err", err)
		}
	}
}

func (g *Gates) answer(ctx context.Context, one *gate, name string) answered {
	one.mu.Lock()
	sb := one.sb
	one.mu.Unlock()
	// A gate may have been taken over by what it reads: it is told what its
	// sandbox was given, and nothing else of the owner's.
	if !slices.Contains(sb.Spec.Secrets, name) {
		g.opts.Log.Warn("a gate asks for a secret that its sandbox was not given", "id", sb.ID, "secret", fmt.Sprintf("%.80q", name))
		return answered{Name: name, Error: "the sandbox was not given it"}
	}
	v, err := g.opts.Secrets.Value(ctx, sb.Owner, sb.ID, name)
	if err != nil {
		g.opts.Log.Warn("a secret can't be had", "id", sb.ID, "secret", name, "err", err)
		text := "it can't be had"
		if e, ok := errors.AsType[*sandbox.Error](err); ok {
			text = e.Msg
		}
		return answered{Name: name, Error: text}
	}
	return answered{Name: name, Value: value{Text: v.Value.Reveal(), Expires: v.Expires}}
}

func (one *gate) name() string {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.sb.Spec.Name
}

// uses reports whether a gate may put the secret that changed into requests.
func (one *gate) uses(c secret.Change) bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	return (one.sb.Owner == c.Owner || one.id == c.Sandbox && c.Sandbox != "") && slices.Contains(one.sb.Spec.Secrets, c.Name)
}

// proves reports whether a remote of the sandbox's is known by that secret.
func (one *gate) proves(owner, name string) bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.sb.Owner == owner && slices.ContainsFunc(one.sb.Spec.Remotes, func(r sandbox.Remote) bool {
		return r.Key.Provider == sandbox.KeySecret && r.Key.Name == name
	})
}

// Log implements sandbox.Gate. It reads what the gate writes, so it works
// while there is none.
func (g *Gates) Log(ctx context.Context, id string, o sandbox.NetLogOptions, yield func(netlog.Record) error) error {
	dir, err := g.dir(id)
	if err != nil {
		return err
	}
	return netlog.Read(ctx, filepath.Join(dir, fileLogA), filepath.Join(dir, fileLogB),
		netlog.Options{After: o.After, Denied: o.Denied, Follow: o.Follow}, yield)
}
