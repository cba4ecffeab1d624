package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/carboy-sandbox/carboy/api"
)

// RequestBuild enters a build of a template, which is made where there is none
// of that name.
func (c *Client) RequestBuild(ctx context.Context, req api.BuildRequest) (*api.BuildRef, error) {
	return ask[api.BuildRef](ctx, c, http.MethodPost, "/v3/templates", req)
}

// FileLink says whether files with that hash are there, and where to send them.
func (c *Client) FileLink(ctx context.Context, template, hash string) (*api.FileLink, error) {
	return ask[api.FileLink](ctx, c, http.MethodGet, "/templates/"+url.PathEscape(template)+"/files/"+url.PathEscape(hash), nil)
}

// SendFiles sends a tar, which may be compressed, to where link says. A link is
// good once.
func (c *Client) SendFiles(ctx context.Context, link *api.FileLink, archive io.Reader) error {
	u, err := url.Parse(link.URL)
	if err != nil {
		return fmt.Errorf("read a link for files: %w", err)
	}
	resp, err := c.send(ctx, c.http, http.MethodPut, u.EscapedPath(), archive, "application/octet-stream")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// StartBuild begins a build that was entered. It goes on by itself.
func (c *Client) StartBuild(ctx context.Context, ref api.BuildRef, plan api.BuildPlan) error {
	return c.call(ctx, http.MethodPost, "/v2"+buildPath(ref), plan, nil)
}

func buildPath(ref api.BuildRef) string {
	return "/templates/" + url.PathEscape(ref.TemplateID) + "/builds/" + url.PathEscape(ref.BuildID)
}

// BuildStatus tells how a build is, with up to 100 entries of its log from
// offset on.
func (c *Client) BuildStatus(ctx context.Context, ref api.BuildRef, offset int) (*api.BuildStatus, error) {
	return ask[api.BuildStatus](ctx, c, http.MethodGet, buildPath(ref)+fmt.Sprintf("/status?logsOffset=%d", offset), nil)
}

// CancelBuild ends a build, and returns once it has ended.
func (c *Client) CancelBuild(ctx context.Context, ref api.BuildRef) error {
	return c.call(ctx, http.MethodDelete, buildPath(ref), nil, nil)
}

// Templates lists the caller's templates, newest first.
func (c *Client) Templates(ctx context.Context) ([]api.Template, error) {
	list, err := ask[[]api.Template](ctx, c, http.MethodGet, "/templates", nil)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// RemoveTemplate deletes a template and its builds. Sandboxes of it go on.
func (c *Client) RemoveTemplate(ctx context.Context, ref string) error {
	return c.call(ctx, http.MethodDelete, "/templates/"+url.PathEscape(ref), nil, nil)
}

// Template returns a template with its builds, the newest first.
func (c *Client) Template(ctx context.Context, ref string) (*api.TemplateDetail, error) {
	return ask[api.TemplateDetail](ctx, c, http.MethodGet, "/templates/"+url.PathEscape(ref), nil)
}

// PublishTemplate lets others use a template, or no longer. It returns the names
// by which they do.
func (c *Client) PublishTemplate(ctx context.Context, ref string, public bool) ([]string, error) {
	out, err := ask[struct {
		Names []string `json:"names"`
	}](ctx, c, http.MethodPatch, "/v2/templates/"+url.PathEscape(ref), map[string]bool{"public": public})
	if err != nil {
		return nil, err
	}
	return out.Names, nil
}

// TagTemplate has tags lead to the build that target, NAME or NAME:TAG, leads
// to.
func (c *Client) TagTemplate(ctx context.Context, target string, tags []string) (*api.TemplateTags, error) {
	return ask[api.TemplateTags](ctx, c, http.MethodPost, "/templates/tags", map[string]any{"target": target, "tags": tags})
}

// UntagTemplate removes tags of a template.
func (c *Client) UntagTemplate(ctx context.Context, name string, tags []string) error {
	return c.call(ctx, http.MethodDelete, "/templates/tags", map[string]any{"name": name, "tags": tags}, nil)
}

// TemplateCache tells what is kept for the caller's builds.
func (c *Client) TemplateCache(ctx context.Context) (*api.TemplateCache, error) {
	return ask[api.TemplateCache](ctx, c, http.MethodGet, "/v1/templates/cache", nil)
}

// CollectTemplates drops that, as far as no template needs it, and returns what
// it dropped. While a build is under way it is a Conflict.
func (c *Client) CollectTemplates(ctx context.Context) (*api.TemplateCache, error) {
	return ask[api.TemplateCache](ctx, c, http.MethodPost, "/v1/templates/gc", nil)
}
