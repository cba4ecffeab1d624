package api

import "time"

// PodRequest is the body of POST /v1/pods, which spawns a pod: a sandbox with a part of what its parent may write of the
// volume that they share.
type PodRequest struct {
	Parent string `json:"parent"` // a pod, or a sandbox whose workspace is a volume
	Name   string `json:"name"`   // of the pod, and of its sandbox
	Task   string `json:"task"`
	// Scope is what it may do with the workspace. What it may write the parent can't write until the pod has stopped.
	Scope []PodRule `json:"scope"`
	// Command is run at each turn: what the pod is given replaces each {} of it, or is its standard input.
	Command []string `json:"command"`
	// Protocol says that Command speaks the pods' protocol itself: it is started once, and has to listen at the socket that CARBOY_POD_SOCKET
	// names.
	Protocol  bool              `json:"protocol,omitempty"`
	Cwd       string            `json:"cwd,omitempty"`       // absolute; default: the workspace
	Env       map[string]string `json:"env,omitempty"`       // of its sandbox
	Isolation string            `json:"isolation,omitempty"` // the parent's wall, or a stronger one; default: the parent's
	// Network is "off", or "parent": the parent's, with its rules and secrets. Default: off.
	Network string `json:"network,omitempty"`
	// Policy gives it a network with rules of its own instead, and Secrets are the names of what its requests may have: its parent has to have
	// all of it.
	Policy  *Policy  `json:"policy,omitempty"`
	Secrets []string `json:"secrets,omitempty"`
	// MaySpawn is how many pods its programs may have spawned at once, by the tools at the service "pods" of its gate; 0: they spawn none.
	MaySpawn   int     `json:"may_spawn,omitempty"`
	Limits     *Limits `json:"limits,omitempty"`      // none above the parent's; default: the parent's
	TTLSeconds int64   `json:"ttl_seconds,omitempty"` // then it is stopped; default: as long as the parent has
	// Budget is what all pods below it may have together.
	Budget *PodBudget `json:"budget,omitempty"`
	// EndWriters ends what runs in the parent and could go on writing where the pod may. Otherwise that is 409, which names it.
	EndWriters bool `json:"end_writers,omitempty"`
}

// PodBudget bounds what stands below a pod. 0: nothing but the budgets of those above.
type PodBudget struct {
	Pods   int     `json:"pods,omitempty"`   // how many there are at once
	Depth  int     `json:"depth,omitempty"`  // how many stand one below the other; 1: its own pods spawn none
	CPUs   float64 `json:"cpus,omitempty"`   // the sum of their limits
	Memory int64   `json:"memory,omitempty"` // bytes; the sum of their limits
	PIDs   int64   `json:"pids,omitempty"`   // the sum of their limits
}

// PodRule says what a pod may do at a path of the workspace.
type PodRule struct {
	Target     string `json:"target"`              // as it is seen inside, or from the workspace on
	Permission string `json:"permission"`          // read or write
	Recursive  *bool  `json:"recursive,omitempty"` // with all below; default: true
}

// PodSpawned is the answer.
type PodSpawned struct {
	Pod   Pod      `json:"pod"`
	Ended []string `json:"ended,omitempty"` // what EndWriters ended, in words
}

// Pod is an agent to which a part of a workspace was delegated, or a sandbox that delegated. GET /v1/pods lists the caller's.
type Pod struct {
	Name    string `json:"name"`
	Parent  string `json:"parent,omitempty"`  // who delegated to it; absent: nobody
	Sandbox string `json:"sandbox,omitempty"` // its ID; absent: there is none any more
	Volume  string `json:"volume,omitempty"`  // the workspace's, by its name
	// State is "reserved" while it is made, "delivering" while it is given its task, "live", and "ending".
	State    string `json:"state"`
	Liveness string `json:"liveness"` // "alive", "gone" or "unknown"
	// Status is "idle" or "running"; absent: it runs nothing of its own.
	Status string    `json:"status,omitempty"`
	Turns  int       `json:"turns,omitempty"`
	Scope  []PodRule `json:"scope"` // what it was given
	// Writable are the directories of its scope that it can write to now; what its children have of them is theirs.
	Writable []string `json:"writable"`
	Children []string `json:"children"`
	// Protocol says that its command speaks the pods' protocol itself: its turns are not counted.
	Protocol bool `json:"protocol,omitempty"`
	// Limits, Budget and Until are what it was bounded by when it was spawned.
	Limits *Limits    `json:"limits,omitempty"`
	Budget *PodBudget `json:"budget,omitempty"`
	Until  time.Time  `json:"until,omitzero"` // when it is ended
	// Others are the sandboxes that have its workspace, and are no pods: nothing keeps them from writing where it does.
	Others    []string  `json:"others,omitempty"`
	Command   []string  `json:"command,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// PodMessage is the body of POST /v1/pods/{name}/messages, which begins the pod's next turn. While one is under way it is 409.
type PodMessage struct {
	Message string `json:"message"`
}

// PodOutput is the answer of GET /v1/pods/{name}/output: what the pod has said from the entry that the parameter from names; without one,
// since it was asked for so the last time. Where the parameter wait is 1 and that is nothing, the answer waits for more as long as a turn is
// under way.
type PodOutput struct {
	Text   string `json:"text"`
	First  int    `json:"first"`          // the first entry that was there: older ones are not kept
	Next   int    `json:"next"`           // from, the next time
	More   bool   `json:"more,omitempty"` // there is more already
	Status string `json:"status"`
	Failed string `json:"failed,omitempty"` // why the newest turn that ended did not go well
}

// PodStopped is the answer of DELETE /v1/pods/{name}.
type PodStopped struct {
	Name      string    `json:"name"`
	Reclaimed []PodRule `json:"reclaimed"` // what its parent has back
	Summary   string    `json:"summary"`   // the same in words
}
