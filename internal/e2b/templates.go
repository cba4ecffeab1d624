package e2b

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/template"
)

// TemplateService is what the paths of templates are asked of.
type TemplateService interface {
	Templates
	Request(ctx context.Context, c sandbox.Caller, q template.Request) (template.Template, template.Record, error)
	Start(ctx context.Context, c sandbox.Caller, ref, build string, p template.Plan) error
	Build(ctx context.Context, c sandbox.Caller, ref, build string) (template.Record, error)
	Logs(ctx context.Context, c sandbox.Caller, ref, build string, q template.LogQuery) ([]template.Entry, error)
	Cancel(ctx context.Context, c sandbox.Caller, ref, build string) error
	CancelAll(ctx context.Context, owner string) (n int)
	FileLink(ctx context.Context, c sandbox.Caller, source, ref, hash string) (present bool, token string, err error)
	Upload(ctx context.Context, token string, size int64, r io.Reader) error
	List(ctx context.Context, c sandbox.Caller) ([]template.Info, error)
	Get(ctx context.Context, c sandbox.Caller, ref string, public bool) (template.Info, error)
	SetPublic(ctx context.Context, c sandbox.Caller, ref string, public bool) (template.Info, error)
	Delete(ctx context.Context, c sandbox.Caller, ref string) error
	Assign(ctx context.Context, c sandbox.Caller, target string, tags []string) (template.Record, []string, error)
	Untag(ctx context.Context, c sandbox.Caller, name string, tags []string) error
}

var _ TemplateService = (*template.Service)(nil)

// templateRoutes are the paths of templates.
func (h *handler) templateRoutes() []route {
	read := func(c Caller) bool { return c.Read }
	manage := func(c Caller) bool { return c.Manage }
	t, ok := h.o.Templates.(TemplateService)
	if !ok {
		return nil
	}
	x := templates{h, t}
	return []route{
		{"POST /v3/templates", manage, x.request},
		{"POST /v2/templates", manage, x.requestV2},
		{"POST /templates", manage, x.dockerfile},
		{"POST /templates/{id}", manage, x.dockerfile},
		{"POST /templates/{id}/builds/{build}", manage, x.dockerfile},
		{"POST /v2/templates/{id}/builds/{build}", manage, x.start},
		{"DELETE /templates/{id}/builds/{build}", manage, x.cancel},
		{"GET /templates?", read, x.list},
		{"GET /v2/templates?", read, x.listV2},
		{"GET /templates/{id}?", read, x.get},
		{"DELETE /templates/{id}", manage, x.delete},
		{"PATCH /templates/{id}", manage, x.update},
		{"PATCH /v2/templates/{id}", manage, x.update},
		{"GET /templates/{id}/{part}", read, x.part},
		{"GET /templates/{id}/{part}/{hash}", manage, x.files},
		{"GET /templates/{id}/builds/{build}/status?", read, x.status},
		{"GET /templates/{id}/builds/{build}/logs?", read, x.logs},
		{"POST /templates/tags", manage, x.assign},
		{"DELETE /templates/tags", manage, x.untag},
	}
}

// templates are the paths of templates.
type templates struct {
	h *handler
	s TemplateService
}

const (
	bytesPerMiB = 1 << 20
	maxCPUs     = 1 << 10
	maxMemory   = 1 << 24 // MiB
	maxDisk     = 1 << 30 // MiB
)

// buildRequest is the body of a request for a build, of any version.
type buildRequest struct {
	Name     *string  `json:"name"`
	Alias    *string  `json:"alias"`
	Tags     []string `json:"tags"`
	TeamID   string   `json:"teamID"`
	CPUCount *int32   `json:"cpuCount"`
	MemoryMB *int32   `json:"memoryMB"`
	// MinFreeDiskMB is what is to be free once it was built. It makes the disk no
	// smaller than usual.
	MinFreeDiskMB *int64 `json:"minFreeDiskMb"`
}

func (b buildRequest) request() (template.Request, error) {
	name := b.Name
	if name == nil {
		name = b.Alias
	}
	if name == nil || *name == "" {
		return template.Request{}, sandbox.Errorf(sandbox.Invalid, "name: it is missing")
	}
	q := template.Request{Name: *name, Tags: b.Tags}
	if n := b.CPUCount; n != nil {
		if *n < 1 || *n > maxCPUs {
			return q, sandbox.Errorf(sandbox.Invalid, "cpuCount: from 1 to %d", maxCPUs)
		}
		q.CPUs = float64(*n)
	}
	if n := b.MemoryMB; n != nil {
		if *n < 128 || *n > maxMemory {
			return q, sandbox.Errorf(sandbox.Invalid, "memoryMB: from 128 to %d", maxMemory)
		}
		q.Memory = int64(*n) * bytesPerMiB
	}
	if n := b.MinFreeDiskMB; n != nil {
		if *n < 0 || *n > maxDisk {
			return q, sandbox.Errorf(sandbox.Invalid, "minFreeDiskMb: from 0 to %d", maxDisk)
		}
		// What a sandbox writes counts, and not what its template has.
		if free := *n * bytesPerMiB; free > sandbox.DefaultDisk {
			q.Disk = free
		}
	}
	return q, nil
}

// requested answers a request for a build.
type requested struct {
	TemplateID string   `json:"templateID"`
	BuildID    string   `json:"buildID"`
	Public     bool     `json:"public"`
	Names      []string `json:"names"`
	Aliases    []string `json:"aliases"`
	Tags       []string `json:"tags"`
}

func (x templates) ask(r *http.Request, c Caller) (template.Template, template.Record, error) {
	var body buildRequest
	if err := wire.Decode(r, &body, false); err != nil {
		return template.Template{}, template.Record{}, err
	}
	q, err := body.request()
	if err == nil {
		err = ownTeam(c, body.TeamID, sandbox.Invalid)
	}
	if err != nil {
		return template.Template{}, template.Record{}, err
	}
	return x.s.Request(r.Context(), c.Caller, q)
}

func (x templates) request(w http.ResponseWriter, r *http.Request, c Caller) error {
	t, b, err := x.ask(r, c)
	if err != nil {
		return err
	}
	wire.JSON(w, http.StatusAccepted, requested{
		TemplateID: t.ID, BuildID: b.ID, Public: t.Public, Names: namesOf(t), Aliases: []string{t.Name}, Tags: b.Tags,
	})
	return nil
}

func (x templates) requestV2(w http.ResponseWriter, r *http.Request, c Caller) error {
	t, b, err := x.ask(r, c)
	if err != nil {
		return err
	}
	one := described(template.Info{Template: t, Builds: []template.Record{b}})
	one.BuildID = b.ID
	wire.JSON(w, http.StatusAccepted, one)
	return nil
}

// dockerfile refuses the protocol of old, by which an image was pushed to E2B's
// own registry.
func (x templates) dockerfile(_ http.ResponseWriter, r *http.Request, _ Caller) error {
	return sandbox.Errorf(sandbox.Unsupported, "%s %.80s: builds that push an image are not available", r.Method, r.URL.Path).
		WithHint("use POST /v3/templates, as newer clients do, or carboy template build")
}

// buildPlan is the body of a build's start.
type buildPlan struct {
	FromImage         string        `json:"fromImage"`
	FromTemplate      string        `json:"fromTemplate"`
	FromImageRegistry *registryAuth `json:"fromImageRegistry"`
	Force             bool          `json:"force"`
	Steps             []step        `json:"steps"`
	StartCmd          *string       `json:"startCmd"`
	ReadyCmd          *string       `json:"readyCmd"`

	// What steps may reach: ours, and no field of E2B's.
	Network string         `json:"network"`
	Policy  *policy.Policy `json:"policy"`
}

// step is one of a plan. What is of no use to a server is known all the same:
// clients send what they keep.
type step struct {
	Type            string   `json:"type"`
	Args            []string `json:"args"`
	FilesHash       *string  `json:"filesHash"`
	Force           *bool    `json:"force"`
	ForceUpload     *bool    `json:"forceUpload"`     // the client's own concern
	ResolveSymlinks *bool    `json:"resolveSymlinks"` // likewise: it resolves them
	Gzip            *bool    `json:"gzip"`            // likewise: archives tell by themselves
}

// registryAuth is for the registry of fromImage.
type registryAuth struct {
	Type     string `json:"type"`
	Username string `json:"username"`
	Password string `json:"password"`

	AWSAccessKeyID     string          `json:"awsAccessKeyId"`
	AWSSecretAccessKey string          `json:"awsSecretAccessKey"`
	AWSRegion          string          `json:"awsRegion"`
	ServiceAccountJSON json.RawMessage `json:"serviceAccountJson"`
}

func (a *registryAuth) auth() (*template.Auth, error) {
	switch {
	case a == nil:
		return nil, nil
	case a.Type == "registry":
		return &template.Auth{Username: a.Username, Password: a.Password}, nil
	case a.Type == "aws" || a.Type == "gcp":
		return nil, sandbox.Errorf(sandbox.Unsupported, "fromImageRegistry %s: no tokens are fetched from that cloud here", a.Type).
			WithHint(`fetch one yourself, and use type "registry" with its user name and password`)
	}
	return nil, sandbox.Errorf(sandbox.Invalid, "fromImageRegistry: %.20q is no type of registry", a.Type).WithHint("registry")
}

func (x templates) start(w http.ResponseWriter, r *http.Request, c Caller) error {
	var body buildPlan
	if err := wire.Decode(r, &body, false); err != nil {
		return err
	}
	auth, err := body.FromImageRegistry.auth()
	if err != nil {
		return err
	}
	p := template.Plan{
		FromImage: body.FromImage, FromTemplate: body.FromTemplate, Auth: auth, Force: body.Force,
		StartCmd: value(body.StartCmd), ReadyCmd: value(body.ReadyCmd), HostImage: c.HostImage, Outside: !c.PrivateNetwork,
	}
	if p.Network, p.Policy, err = sandbox.ResolveNetwork(body.Network, body.Policy); err != nil {
		return err
	}
	if err := (outcome{policy: p.Policy}).mayOpen(c); err != nil {
		return err
	}
	for _, st := range body.Steps {
		p.Steps = append(p.Steps, template.Step{Type: st.Type, Args: st.Args, FilesHash: value(st.FilesHash), Force: value(st.Force)})
	}
	if err := x.s.Start(r.Context(), c.Caller, r.PathValue("id"), r.PathValue("build"), p); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// value is what p points to, or nothing.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func (x templates) cancel(w http.ResponseWriter, r *http.Request, c Caller) error {
	if err := x.s.Cancel(r.Context(), c.Caller, r.PathValue("id"), r.PathValue("build")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// part answers GET /templates/{id}/tags and /templates/aliases/{alias}.
func (x templates) part(w http.ResponseWriter, r *http.Request, c Caller) error {
	id, part := r.PathValue("id"), r.PathValue("part")
	switch {
	case id == "aliases":
		return x.alias(w, r, c, part)
	case part == "tags":
		return x.tags(w, r, c)
	}
	return sandbox.Errorf(sandbox.NotFound, "%.200q: no such path", r.URL.Path)
}

// aliasAnswer says that there is a template.
type aliasAnswer struct {
	TemplateID string `json:"templateID"`
	Public     bool   `json:"public"`
}

func (x templates) alias(w http.ResponseWriter, r *http.Request, c Caller, name string) error {
	i, err := x.s.Get(r.Context(), c.Caller, name, false)
	if err != nil {
		return err
	}
	if _, tag, ok := strings.Cut(name, ":"); ok && !hasTag(i, tag) {
		return sandbox.Errorf(sandbox.NotFound, "template %s: it has no tag %.80q", i.Name, tag)
	}
	wire.JSON(w, http.StatusOK, aliasAnswer{i.ID, i.Public})
	return nil
}

func hasTag(i template.Info, tag string) bool {
	for _, t := range i.Tags {
		if t.Name == tag {
			return true
		}
	}
	return false
}

// tagAnswer is a tag.
type tagAnswer struct {
	Tag       string    `json:"tag"`
	BuildID   string    `json:"buildID"`
	CreatedAt time.Time `json:"createdAt"`
}

func (x templates) tags(w http.ResponseWriter, r *http.Request, c Caller) error {
	i, err := x.s.Get(r.Context(), c.Caller, r.PathValue("id"), false)
	if err != nil {
		return err
	}
	out := []tagAnswer{}
	for _, t := range i.Tags {
		out = append(out, tagAnswer{t.Name, t.Build, t.CreatedAt})
	}
	wire.JSON(w, http.StatusOK, out)
	return nil
}

func (x templates) assign(w http.ResponseWriter, r *http.Request, c Caller) error {
	var body struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := wire.Decode(r, &body, false); err != nil {
		return err
	}
	b, tags, err := x.s.Assign(r.Context(), c.Caller, body.Target, body.Tags)
	if err != nil {
		return err
	}
	wire.JSON(w, http.StatusCreated, struct {
		Tags    []string `json:"tags"`
		BuildID string   `json:"buildID"`
	}{tags, b.ID})
	return nil
}

func (x templates) untag(w http.ResponseWriter, r *http.Request, c Caller) error {
	var body struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := wire.Decode(r, &body, false); err != nil {
		return err
	}
	if err := x.s.Untag(r.Context(), c.Caller, body.Name, body.Tags); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// UploadPath is below which archives are sent: the token of a link follows,
// which is all the right that there is.
const UploadPath = "/templates/files/"

// files answers GET /templates/{id}/files/{hash}.
func (x templates) files(w http.ResponseWriter, r *http.Request, c Caller) error {
	if r.PathValue("part") != "files" {
		return sandbox.Errorf(sandbox.NotFound, "%.200q: no such path", r.URL.Path)
	}
	present, token, err := x.s.FileLink(r.Context(), c.Caller, c.Source, r.PathValue("id"), r.PathValue("hash"))
	if err != nil {
		return err
	}
	scheme := "http"
	if p := r.Header.Get("X-Forwarded-Proto"); r.TLS != nil || p == "https" {
		scheme = "https"
	}
	wire.JSON(w, http.StatusCreated, struct {
		Present bool   `json:"present"`
		URL     string `json:"url"`
	}{present, scheme + "://" + cmp.Or(r.Host, "localhost") + UploadPath + token})
	return nil
}
