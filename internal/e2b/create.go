package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/template"
)

// newSandbox is the body of a create. What is kept raw is known, and can't be
// honoured unless it asks for nothing.
type newSandbox struct {
	TemplateID      string            `json:"templateID"`
	Timeout         *int32            `json:"timeout"` // seconds
	Metadata        map[string]string `json:"metadata"`
	EnvVars         map[string]string `json:"envVars"`
	Secure          *bool             `json:"secure"`
	AllowInternet   *bool             `json:"allow_internet_access"`
	AutoPause       bool              `json:"autoPause"`
	AutoPauseMemory *bool             `json:"autoPauseMemory"`
	AutoResume      *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Network *network `json:"network"`
	// MCP is for the gateway of the template, which the client itself starts
	// with it: it is of no use here.
	MCP          map[string]json.RawMessage `json:"mcp"`
	IAM          json.RawMessage            `json:"iam"`
	VolumeMounts []volumeMount              `json:"volumeMounts"`
}

// created is what a client needs to reach a sandbox.
type created struct {
	TemplateID      string  `json:"templateID"`
	SandboxID       string  `json:"sandboxID"`
	Alias           string  `json:"alias,omitempty"`
	ClientID        string  `json:"clientID"`
	EnvdVersion     string  `json:"envdVersion"`
	EnvdAccessToken string  `json:"envdAccessToken,omitempty"`
	TrafficToken    string  `json:"trafficAccessToken,omitempty"`
	Domain          *string `json:"domain"`
}

func (h *handler) create(defaultTimeout time.Duration) func(http.ResponseWriter, *http.Request, Caller) error {
	return func(w http.ResponseWriter, r *http.Request, c Caller) error {
		var req newSandbox
		if err := wire.Decode(r, &req, false); err != nil {
			return err
		}
		if err := req.check(); err != nil {
			return err
		}
		if err := sandbox.CheckCallersLabels(req.Metadata); err != nil {
			return err
		}
		build, err := h.resolve(r.Context(), c, req.TemplateID)
		if err != nil {
			return err
		}
		ttl, err := seconds("timeout", req.Timeout, defaultTimeout)
		if err != nil {
			return err
		}
		spec := sandbox.Spec{Isolation: h.o.Isolation, Sudo: h.o.Sudo, Env: req.EnvVars, Labels: req.Metadata, TTL: ttl, OnExpiry: onExpiry(req.AutoPause, req.AutoPauseMemory == nil || *req.AutoPauseMemory)}
		build.Apply(&spec)
		if spec.Mounts, err = h.mountsOf(r.Context(), c, req.VolumeMounts); err != nil {
			return err
		}
		values, more, err := h.networkOf(&req, &spec, c)
		if err == nil {
			err = h.fillSecrets(r.Context(), c.Owner, &spec, values)
		}
		if err != nil {
			return err
		}
		sb, err := h.m.Create(r.Context(), build.Caller(c.Caller), spec, values)
		if err != nil {
			return err
		}
		notice(w, append(req.notes(), more...))
		wire.JSON(w, http.StatusCreated, h.created(sb, c))
		return nil
	}
}

func (h *handler) created(sb *sandbox.Sandbox, c Caller) created {
	return created{
		TemplateID: templateOf(sb), SandboxID: sb.ID, Alias: aliasOf(sb), ClientID: clientID,
		EnvdVersion: EnvdVersion, EnvdAccessToken: tokenFor(sb.Token, c), TrafficToken: tokenFor(sb.TrafficToken, c), Domain: h.domain(),
	}
}

// check refuses what this version can't do.
func (req *newSandbox) check() error {
	if req.TemplateID == "" {
		return sandbox.Errorf(sandbox.Invalid, "templateID: it is missing").WithHint("use %s", template.Base)
	}
	if filesOnly := req.AutoPauseMemory != nil && !*req.AutoPauseMemory; filesOnly && !req.AutoPause {
		return sandbox.Errorf(sandbox.Invalid, "autoPauseMemory: false is about a pause, and autoPause is not set").
			WithHint("set autoPause, or leave autoPauseMemory out")
	} else if filesOnly && req.AutoResume != nil && req.AutoResume.Enabled {
		return sandbox.Errorf(sandbox.Invalid, "autoPauseMemory: false can't go with autoResume: what is paused without its memory is resumed by a call").
			WithHint("leave one of them out")
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"iam", asks(req.IAM)},
	} {
		if f.set {
			return sandbox.Errorf(sandbox.Unsupported, "%s: not available in this version", f.name).
				WithHint("leave it out")
		}
	}
	return nil
}

// notes are about what is kept in another way than E2B would.
func (req *newSandbox) notes() (notes []policy.Note) {
	if req.Secure != nil && !*req.Secure {
		notes = append(notes, policy.Note{Where: "secure", Text: "the sandbox asks for its access token all the same: it is in this answer"})
	}
	if req.AutoPause && (req.AutoPauseMemory == nil || *req.AutoPauseMemory) {
		notes = append(notes, policy.Note{Where: "autoPause", Text: "files are kept, processes only where the wall can: gvisor can"})
	}
	return notes
}

// asks reports whether a raw option asks for anything.
func asks(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "", "null", "{}", "[]":
		return false
	}
	return true
}

// seconds reads a time to live. A sandbox has at least the second that its
// answer takes; 0 would mean without end to the domain.
func seconds(name string, n *int32, def time.Duration) (time.Duration, error) {
	if n == nil {
		return def, nil
	}
	if d := time.Duration(*n) * time.Second; d >= 0 && d <= sandbox.MaxTTL {
		return max(d, sandbox.MinTTL), nil
	}
	return 0, sandbox.Errorf(sandbox.Invalid, "%s: from 0 to %d seconds", name, int64(sandbox.MaxTTL.Seconds()))
}

func templateOf(sb *sandbox.Sandbox) string {
	switch {
	case sb.Spec.Template != nil:
		return sb.Spec.Template.ID
	case sb.Spec.Image == sandbox.DefaultImage:
		return template.Base
	}
	return sb.Spec.Image
}

// aliasOf is a name to know a sandbox by: its template's, as E2B has it, or
// its own where that has none.
func aliasOf(sb *sandbox.Sandbox) string {
	if t := sb.Spec.Template; t != nil && t.Alias != "" {
		return t.Alias
	}
	return sb.Spec.Name
}

// tokenFor returns what lets c into a sandbox, where c may go there.
func tokenFor(token string, c Caller) string {
	if !c.Exec {
		return ""
	}
	return token
}

func (h *handler) domain() *string {
	if h.o.Domain == "" {
		return nil
	}
	return &h.o.Domain
}

// Templates has what sandboxes are made from.
type Templates interface {
	// Resolve returns the build that ref names for c: NAME, NAME:TAG,
	// OWNER/NAME, or the ID of a template or of a snapshot. What c may not use
	// is NotFound.
	Resolve(ctx context.Context, c sandbox.Caller, ref string) (template.Build, error)
}

// resolve returns what a sandbox of the template ref starts from, if c's key
// may have it.
func (h *handler) resolve(ctx context.Context, c Caller, ref string) (template.Build, error) {
	b, err := template.BaseBuild(), error(nil)
	switch {
	case h.o.Templates != nil:
		b, err = h.o.Templates.Resolve(ctx, c.Caller, ref)
	case ref != template.Base:
		err = sandbox.Errorf(sandbox.NotFound, "template %.80q: there is no such template", ref).WithHint("use %s", template.Base)
	}
	if err == nil && b.Image == sandbox.DefaultImage && !c.HostImage {
		err = sandbox.Errorf(sandbox.Denied, "template %.80s: this key may not use the machine's own programs, which it is made of", ref).
			WithHint("%s", sandbox.HostImageHint)
	}
	return b, err
}
