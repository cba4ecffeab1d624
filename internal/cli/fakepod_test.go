package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// podRoutes are the fake's pods. One says its task, in capitals where it was sent that; "busy" is always at its task, and "sad"
// fails.
func (d *fakeDaemon) podRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/pods": func(w http.ResponseWriter, _ *http.Request) error {
			return json.NewEncoder(w).Encode(append([]api.Pod{}, d.pods...))
		},
		"POST /v1/pods":                 d.spawnPod,
		"GET /v1/pods/{name}":           d.getPod,
		"DELETE /v1/pods/{name}":        d.stopPod,
		"POST /v1/pods/{name}/messages": d.sendToPod,
		"GET /v1/pods/{name}/output":    d.podOutput,
		"GET /v1/pods/{name}/attach":    d.attachPod,
	}
}

func (d *fakeDaemon) findPod(r *http.Request) (*api.Pod, error) {
	i := slices.IndexFunc(d.pods, func(p api.Pod) bool { return p.Name == r.PathValue("name") })
	if i < 0 {
		return nil, sandbox.Errorf(sandbox.NotFound, "no spawned pod named `%s`", r.PathValue("name")).WithHint("carboy pod ls")
	}
	return &d.pods[i], nil
}

func (d *fakeDaemon) spawnPod(w http.ResponseWriter, r *http.Request) error {
	var req api.PodRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.pods) == 0 {
		d.pods = append(d.pods, api.Pod{
			Name: req.Parent, State: "live", Liveness: "alive", Volume: "crate", Writable: []string{"/workspace"}, Children: []string{},
			Scope: []api.PodRule{{Target: "/workspace", Permission: "write"}}, CreatedAt: created,
		})
	}
	p := api.Pod{
		Name: req.Name, Parent: req.Parent, Sandbox: "sb_pod", Volume: "crate", State: "live", Liveness: "alive", Status: "idle", Turns: 1, Scope: req.Scope,
		Writable: []string{}, Children: []string{}, Command: req.Command, CreatedAt: created,
	}
	for i := range p.Scope {
		p.Scope[i].Target = "/workspace/" + p.Scope[i].Target
		if p.Scope[i].Permission == "write" {
			p.Writable = append(p.Writable, p.Scope[i].Target)
		}
	}
	if p.Name == "busy" {
		p.Status = "running"
	}
	d.said = append(d.said, req.Task)
	for i := range d.pods {
		if d.pods[i].Name == req.Parent {
			d.pods[i].Children = append(d.pods[i].Children, p.Name)
		}
	}
	d.pods = append(d.pods, p)
	out := api.PodSpawned{Pod: p}
	if req.EndWriters {
		out.Ended = []string{"vim (pid 7), which works in /workspace/docs"}
	}
	return answer(w, out)
}

func (d *fakeDaemon) getPod(w http.ResponseWriter, r *http.Request) error {
	p, err := d.findPod(r)
	if err != nil {
		return err
	}
	return answer(w, p)
}

func (d *fakeDaemon) stopPod(w http.ResponseWriter, r *http.Request) error {
	p, err := d.findPod(r)
	if err != nil {
		return err
	}
	out := api.PodStopped{Name: p.Name, Reclaimed: p.Scope, Summary: "stopped pod `" + p.Name + "`; reclaimed scope: write:" + p.Scope[0].Target}
	d.pods = slices.DeleteFunc(d.pods, func(o api.Pod) bool { return o.Name == out.Name })
	return answer(w, out)
}

func (d *fakeDaemon) sendToPod(w http.ResponseWriter, r *http.Request) error {
	var req api.PodMessage
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return err
	}
	p, err := d.findPod(r)
	if err != nil {
		return err
	}
	if p.Name == "busy" {
		return sandbox.Errorf(sandbox.Conflict, "pod `busy` is already running a turn; wait for it to finish and retry")
	}
	d.said = append(d.said, strings.ToUpper(req.Message))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (d *fakeDaemon) podOutput(w http.ResponseWriter, r *http.Request) error {
	p, err := d.findPod(r)
	if err != nil {
		return err
	}
	out := api.PodOutput{Status: p.Status, Next: len(d.said)}
	from := d.heard
	if v := r.URL.Query().Get("from"); v != "" {
		if from = 0; v != "0" {
			from = len(d.said)
		}
	} else {
		d.heard = len(d.said)
	}
	for _, s := range d.said[from:] {
		out.Text += s + "\n"
	}
	if p.Name == "sad" && out.Text == "" {
		out.Failed = "its command ended with 3: no such model"
	}
	return answer(w, out)
}

// attachPod speaks the pods' protocol as a pod does that says each task in capitals; "sad" fails at each, and "gone" ends at it.
func (d *fakeDaemon) attachPod(w http.ResponseWriter, r *http.Request) error {
	p, err := d.findPod(r)
	if err != nil {
		return err
	}
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer c.Close()
	tell := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(c, format, args...)
		}
	}
	tell("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: carboy-pod\r\n\r\n")
	tell(`{"event":"snapshot","data":{"entries":[],"status":"idle"}}` + "\n")
	for in := bufio.NewScanner(rw); err == nil && in.Scan(); {
		var m struct {
			Params struct {
				Input []struct{ Content string } `json:"input"`
			} `json:"params"`
		}
		if err := json.Unmarshal(in.Bytes(), &m); err != nil || p.Name == "gone" {
			break
		}
		tell(`{"event":"turn_start","data":{"turn":1}}` + "\n")
		if p.Name == "sad" {
			tell(`{"event":"error","data":{"code":"internal","message":"no such model"}}` + "\n")
		} else {
			tell(`{"event":"text_delta","data":{"text":%q}}`+"\n", strings.ToUpper(m.Params.Input[0].Content)+"\n")
		}
		tell(`{"event":"run_end","data":{"result":"finished"}}` + "\n" + `{"event":"status","data":{"status":"idle"}}` + "\n")
	}
	return nil
}
