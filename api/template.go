package api

import "time"

// Template is what sandboxes are made from, as E2B's paths of templates have
// it: GET /templates lists the caller's.
type Template struct {
	TemplateID  string    `json:"templateID"`
	BuildID     string    `json:"buildID"` // the newest that is ready
	BuildStatus string    `json:"buildStatus"`
	Aliases     []string  `json:"aliases"`
	Names       []string  `json:"names"`
	Public      bool      `json:"public"`
	CPUCount    int       `json:"cpuCount"`
	MemoryMB    int       `json:"memoryMB"`
	BuildCount  int       `json:"buildCount"`
	SpawnCount  int64     `json:"spawnCount"`
	CreatedAt   time.Time `json:"createdAt"`
}

// TemplateDetail is a template with its builds, the newest first: GET
// /templates/{id}.
type TemplateDetail struct {
	TemplateID string          `json:"templateID"`
	Public     bool            `json:"public"`
	Names      []string        `json:"names"`
	Builds     []TemplateBuild `json:"builds"`
}

// TemplateBuild is one build of a template.
type TemplateBuild struct {
	BuildID   string    `json:"buildID"`
	Status    string    `json:"status"` // waiting, building, ready or error
	CreatedAt time.Time `json:"createdAt"`
}

// TemplateTags are tags, and the build that they lead to.
type TemplateTags struct {
	Tags    []string `json:"tags"`
	BuildID string   `json:"buildID"`
}

// TemplateCache is what is kept for the caller's builds, or was.
type TemplateCache struct {
	Steps     int   `json:"steps"`     // that need not run again
	Snapshots int   `json:"snapshots"` // of steps and of builds
	Size      int64 `json:"size"`      // bytes of those
	Files     int   `json:"files"`     // archives that were sent
	FileSize  int64 `json:"file_size"` // bytes of those
	// Droppable is what of it POST /v1/templates/gc would drop now.
	Droppable *TemplateCache `json:"droppable,omitempty"`
}

// BuildRequest is the body of POST /v3/templates.
type BuildRequest struct {
	Name     string   `json:"name"`
	Tags     []string `json:"tags,omitempty"`
	CPUCount int      `json:"cpuCount,omitempty"`
	MemoryMB int      `json:"memoryMB,omitempty"`
}

// BuildRef names a build.
type BuildRef struct {
	TemplateID string `json:"templateID"`
	BuildID    string `json:"buildID"`
}

// FileLink is where the files of a COPY are sent, unless they are there.
type FileLink struct {
	Present bool   `json:"present"`
	URL     string `json:"url"`
}

// BuildPlan is the body of POST /v2/templates/{id}/builds/{build}.
type BuildPlan struct {
	FromImage    string      `json:"fromImage,omitempty"`
	FromTemplate string      `json:"fromTemplate,omitempty"`
	Force        bool        `json:"force,omitempty"`
	Steps        []BuildStep `json:"steps,omitempty"`
	StartCmd     string      `json:"startCmd,omitempty"`
	ReadyCmd     string      `json:"readyCmd,omitempty"`
	// Network and Policy are what its steps may reach, as in a CreateRequest, instead
	// of what the daemon's configuration says. E2B has neither.
	Network string  `json:"network,omitempty"`
	Policy  *Policy `json:"policy,omitempty"`
}

// BuildStep is one step of it.
type BuildStep struct {
	Type      string   `json:"type"`
	Args      []string `json:"args"`
	FilesHash string   `json:"filesHash,omitempty"`
}

// BuildStatus is how a build is, with some of its log.
type BuildStatus struct {
	BuildRef
	Status     string     `json:"status"` // waiting, building, ready or error
	LogEntries []BuildLog `json:"logEntries"`
	Reason     *struct {
		Message string `json:"message"` // ends with the hint in brackets
		Hint    string `json:"hint"`
		Step    string `json:"step"`
	} `json:"reason,omitempty"`
}

// BuildLog is one line of a build's log.
type BuildLog struct {
	Timestamp time.Time `json:"timestamp"`
	Message   string    `json:"message"`
	Level     string    `json:"level"`
	Step      string    `json:"step,omitempty"`
}
