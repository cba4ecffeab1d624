package e2b

import (
	"net/http"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/template"
)

// listedTemplate is a template as lists have it.
type listedTemplate struct {
	TemplateID    string     `json:"templateID"`
	BuildID       string     `json:"buildID"`
	CPUCount      int32      `json:"cpuCount"`
	MemoryMB      int32      `json:"memoryMB"`
	DiskSizeMB    int32      `json:"diskSizeMB"`
	Public        bool       `json:"public"`
	Aliases       []string   `json:"aliases"`
	Names         []string   `json:"names"`
	CreatedAt     time.Time  `json:"createdAt"`
	UpdatedAt     time.Time  `json:"updatedAt"`
	CreatedBy     *struct{}  `json:"createdBy"`
	LastSpawnedAt *time.Time `json:"lastSpawnedAt"`
	SpawnCount    int64      `json:"spawnCount"`
	BuildCount    int32      `json:"buildCount"`
	EnvdVersion   string     `json:"envdVersion"`
	BuildStatus   string     `json:"buildStatus"`
}

// namesOf are the names of a template, the first with its namespace.
func namesOf(t template.Template) []string {
	return []string{template.Namespace(t.Owner) + "/" + t.Name}
}

func described(i template.Info) listedTemplate {
	b := i.Latest()
	size := sizeOf(b)
	return listedTemplate{
		TemplateID: i.ID, BuildID: b.ID, CPUCount: size.cpus, MemoryMB: size.memory, DiskSizeMB: size.disk,
		Public: i.Public, Aliases: []string{i.Name}, Names: namesOf(i.Template), CreatedAt: i.CreatedAt, UpdatedAt: i.UpdatedAt,
		LastSpawnedAt: timeOf(i.SpawnedAt), SpawnCount: i.Spawns, BuildCount: int32(len(i.Builds)),
		EnvdVersion: EnvdVersion, BuildStatus: string(b.Status),
	}
}

// size is what a build's sandboxes have, in whole CPUs and MiB.
type size struct{ cpus, memory, disk int32 }

func sizeOf(b template.Record) size {
	s := size{int32(b.CPUs), int32(b.Memory / bytesPerMiB), int32(b.Disk / bytesPerMiB)}
	if s.cpus == 0 {
		s.cpus = sandbox.DefaultCPUs
	}
	if s.memory == 0 {
		s.memory = sandbox.DefaultMemory / bytesPerMiB
	}
	if s.disk == 0 {
		s.disk = sandbox.DefaultDisk / bytesPerMiB
	}
	return s
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (x templates) list(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, err := parse(r, "teamID")
	if err == nil {
		err = ownTeam(c, q.get("teamID"), sandbox.Invalid)
	}
	if err != nil {
		return err
	}
	all, err := x.s.List(r.Context(), c.Caller)
	if err != nil {
		return err
	}
	wire.JSON(w, http.StatusOK, describedAll(all))
	return nil
}

func describedAll(all []template.Info) []listedTemplate {
	out := []listedTemplate{}
	for _, i := range all {
		out = append(out, described(i))
	}
	return out
}

func (x templates) listV2(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, err := parse(r, "teamID", "limit", "nextToken")
	if err == nil {
		err = ownTeam(c, q.get("teamID"), sandbox.Invalid)
	}
	if err != nil {
		return err
	}
	all, err := x.s.List(r.Context(), c.Caller)
	if err != nil {
		return err
	}
	if all, err = paged(w, q, all, func(i template.Info) string { return i.ID }); err != nil {
		return err
	}
	wire.JSON(w, http.StatusOK, describedAll(all))
	return nil
}

// paged cuts the page out of all that q asks for: the token is the ID of what
// came last. The next one is put into the answer's header.
func paged[T any](w http.ResponseWriter, q params, all []T, id func(T) string) ([]T, error) {
	limit, err := q.number("limit", maxPage, 1, maxPage)
	if err != nil {
		return nil, err
	}
	if token := q.get("nextToken"); token != "" {
		found := false
		for i, v := range all {
			if id(v) == token {
				all, found = all[i+1:], true
				break
			}
		}
		if !found {
			return nil, sandbox.Errorf(sandbox.Invalid, "nextToken: not one of this server's, or what it stood for is gone")
		}
	}
	if len(all) > limit {
		all = all[:limit]
		w.Header().Set("X-Next-Token", id(all[limit-1]))
	}
	return all, nil
}

// buildAnswer is a build as its template's list has it.
type buildAnswer struct {
	BuildID     string     `json:"buildID"`
	Status      string     `json:"status"`
	CreatedAt   time.Time  `json:"createdAt"`
	UpdatedAt   time.Time  `json:"updatedAt"`
	FinishedAt  *time.Time `json:"finishedAt,omitempty"`
	CPUCount    int32      `json:"cpuCount"`
	MemoryMB    int32      `json:"memoryMB"`
	DiskSizeMB  int32      `json:"diskSizeMB"`
	EnvdVersion string     `json:"envdVersion"`
}

func (x templates) get(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, err := parse(r, "limit", "nextToken")
	if err != nil {
		return err
	}
	i, err := x.s.Get(r.Context(), c.Caller, r.PathValue("id"), false)
	if err != nil {
		return err
	}
	page, err := paged(w, q, i.Builds, func(b template.Record) string { return b.ID })
	if err != nil {
		return err
	}
	builds := []buildAnswer{}
	for _, b := range page {
		size := sizeOf(b)
		builds = append(builds, buildAnswer{
			b.ID, string(b.Status), b.CreatedAt, b.UpdatedAt, timeOf(b.FinishedAt), size.cpus, size.memory, size.disk, EnvdVersion,
		})
	}
	wire.JSON(w, http.StatusOK, struct {
		TemplateID    string        `json:"templateID"`
		Public        bool          `json:"public"`
		Aliases       []string      `json:"aliases"`
		Names         []string      `json:"names"`
		CreatedAt     time.Time     `json:"createdAt"`
		UpdatedAt     time.Time     `json:"updatedAt"`
		LastSpawnedAt *time.Time    `json:"lastSpawnedAt"`
		SpawnCount    int64         `json:"spawnCount"`
		Builds        []buildAnswer `json:"builds"`
	}{i.ID, i.Public, []string{i.Name}, namesOf(i.Template), i.CreatedAt, i.UpdatedAt, timeOf(i.SpawnedAt), i.Spawns, builds})
	return nil
}

func (x templates) delete(w http.ResponseWriter, r *http.Request, c Caller) error {
	if err := x.s.Delete(r.Context(), c.Caller, r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (x templates) update(w http.ResponseWriter, r *http.Request, c Caller) error {
	var body struct {
		Public *bool `json:"public"`
	}
	if err := wire.Decode(r, &body, false); err != nil {
		return err
	}
	var i template.Info
	var err error
	if body.Public == nil {
		i, err = x.s.Get(r.Context(), c.Caller, r.PathValue("id"), false)
	} else {
		i, err = x.s.SetPublic(r.Context(), c.Caller, r.PathValue("id"), *body.Public)
	}
	if err != nil {
		return err
	}
	wire.JSON(w, http.StatusOK, struct {
		Names []string `json:"names"`
	}{namesOf(i.Template)})
	return nil
}

// reasonAnswer is why a build failed.
type reasonAnswer struct {
	Message    string           `json:"message"`
	Hint       string           `json:"hint,omitempty"` // of Message, for those who show it apart
	Step       string           `json:"step,omitempty"`
	LogEntries []template.Entry `json:"logEntries"`
}

func (x templates) status(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, err := parse(r, "logsOffset", "limit", "level")
	if err != nil {
		return err
	}
	lq := template.LogQuery{Level: template.Level(q.get("level"))}
	if lq.Offset, err = q.number("logsOffset", 0, 0, 1<<30); err != nil {
		return err
	}
	if lq.Limit, err = q.number("limit", template.MaxLogs, 0, template.MaxLogs); err != nil {
		return err
	}
	b, err := x.s.Build(r.Context(), c.Caller, r.PathValue("id"), r.PathValue("build"))
	if err != nil {
		return err
	}
	// The log is read after the status: what a build wrote before its end is
	// in the answer that says so, or in one that follows.
	entries, err := x.s.Logs(r.Context(), c.Caller, b.Template, b.ID, lq)
	if err != nil {
		return err
	}
	lines := []string{}
	for _, e := range entries {
		lines = append(lines, e.Time.Format(time.RFC3339)+" "+e.Text)
	}
	answer := struct {
		TemplateID string           `json:"templateID"`
		BuildID    string           `json:"buildID"`
		Status     string           `json:"status"`
		Logs       []string         `json:"logs"`
		LogEntries []template.Entry `json:"logEntries"`
		Reason     *reasonAnswer    `json:"reason,omitempty"`
	}{b.Template, b.ID, string(b.Status), lines, entries, nil}
	if b.Reason != nil {
		answer.Reason = &reasonAnswer{b.Reason.Text(), b.Reason.Hint, b.Reason.Step, []template.Entry{}}
	}
	wire.JSON(w, http.StatusOK, answer)
	return nil
}

func (x templates) logs(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, err := parse(r, "cursor", "limit", "direction", "level", "source")
	if err != nil {
		return err
	}
	lq := template.LogQuery{Level: template.Level(q.get("level"))}
	if lq.Limit, err = q.number("limit", template.MaxLogs, 0, template.MaxLogs); err != nil {
		return err
	}
	if s := q.get("cursor"); s != "" {
		ms, err := strconv.ParseInt(s, 10, 64)
		if err != nil || ms < 0 {
			return sandbox.Errorf(sandbox.Invalid, "cursor: not milliseconds of Unix time")
		}
		lq.After = time.UnixMilli(ms)
	}
	switch q.get("direction") {
	case "", "forward":
	case "backward":
		lq.Backward = true
	default:
		return sandbox.Errorf(sandbox.Invalid, "direction: forward or backward")
	}
	switch q.get("source") {
	case "", "temporary", "persistent": // one and the same here
	default:
		return sandbox.Errorf(sandbox.Invalid, "source: temporary or persistent")
	}
	entries, err := x.s.Logs(r.Context(), c.Caller, r.PathValue("id"), r.PathValue("build"), lq)
	if err != nil {
		return err
	}
	wire.JSON(w, http.StatusOK, struct {
		Logs []template.Entry `json:"logs"`
	}{entries})
	return nil
}
