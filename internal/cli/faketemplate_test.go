package cli_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// templateRoutes are the fake's templates: web, with one build, and those that
// are asked for, which get no further.
func (d *fakeDaemon) templateRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	all := []api.Template{{TemplateID: "tmpl1", BuildID: "b1", BuildStatus: "ready", Aliases: []string{"web"}, CreatedAt: created}}
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /templates": func(w http.ResponseWriter, _ *http.Request) error { return answer(w, all) },
		"POST /v3/templates": func(w http.ResponseWriter, _ *http.Request) error {
			all = append(all, api.Template{TemplateID: "tmpl2", BuildID: "b2", BuildStatus: "waiting", Aliases: []string{"x"}, CreatedAt: created})
			return answer(w, api.BuildRef{TemplateID: "tmpl2", BuildID: "b2"})
		},
		"GET /templates/{id}/files/{hash}": func(http.ResponseWriter, *http.Request) error {
			return sandbox.Errorf(sandbox.Exhausted, "no room for files")
		},
		"DELETE /templates/{id}/builds/{build}": func(w http.ResponseWriter, _ *http.Request) error {
			all[len(all)-1].BuildStatus = "error"
			w.WriteHeader(http.StatusNoContent)
			return nil
		},
		"GET /templates/{id}": func(w http.ResponseWriter, r *http.Request) error {
			if err := known(r.PathValue("id")); err != nil {
				return err
			}
			return answer(w, api.TemplateDetail{TemplateID: "tmpl1", Builds: []api.TemplateBuild{{BuildID: "b1", Status: "ready"}}})
		},
		"GET /templates/{id}/builds/{build}/status": buildStatus,
		"PATCH /v2/templates/{id}": func(w http.ResponseWriter, r *http.Request) error {
			if err := known(r.PathValue("id")); err != nil {
				return err
			}
			return answer(w, map[string][]string{"names": {"uid-1000/web"}})
		},
		"POST /templates/tags":   templateTags,
		"DELETE /templates/tags": templateTags,
		"GET /v1/templates/cache": func(w http.ResponseWriter, _ *http.Request) error {
			return answer(w, api.TemplateCache{
				Steps: 3, Snapshots: 2, Size: 3 << 20, Files: 1, FileSize: 1 << 10,
				Droppable: &api.TemplateCache{Steps: 3, Snapshots: 1, Size: 2 << 20, Files: 1, FileSize: 1 << 10},
			})
		},
		"POST /v1/templates/gc": func(w http.ResponseWriter, _ *http.Request) error {
			return answer(w, api.TemplateCache{Steps: 3, Snapshots: 1, Size: 2 << 20})
		},
	}
}

func known(ref string) error {
	if name, _, _ := strings.Cut(ref, ":"); name != "web" {
		return sandbox.Errorf(sandbox.NotFound, "template %q: not found", ref).WithHint("carboy template ls")
	}
	return nil
}

// buildStatus has a log of two lines, of which an answer has one.
func buildStatus(w http.ResponseWriter, r *http.Request) error {
	if r.PathValue("build") != "b1" {
		return sandbox.Errorf(sandbox.NotFound, "build %q: the template has no such build", r.PathValue("build"))
	}
	st := api.BuildStatus{Status: "ready", LogEntries: []api.BuildLog{}}
	switch r.URL.Query().Get("logsOffset") {
	case "0":
		st.LogEntries = append(st.LogEntries, api.BuildLog{Timestamp: created, Message: "FROM base", Level: "info", Step: "base"})
	case "1":
		st.LogEntries = append(st.LogEntries, api.BuildLog{Timestamp: created, Message: "Build finished", Level: "info"})
	}
	return answer(w, st)
}

func templateTags(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Target, Name string
		Tags         []string
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return err
	}
	if err := known(req.Target + req.Name); err != nil {
		return err
	}
	if r.Method == http.MethodDelete && slices.Contains(req.Tags, "default") {
		return sandbox.Errorf(sandbox.Invalid, "tag default: it can't be removed")
	}
	return answer(w, api.TemplateTags{Tags: req.Tags, BuildID: "b1"})
}
