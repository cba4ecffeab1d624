package action

// StartServiceRequest starts a program that goes on, and waits until it is ready.
type StartServiceRequest struct {
	Action      string            `json:"action"`
	ServiceName string            `json:"service_name"`
	Command     string            `json:"command"`
	CWD         string            `json:"cwd,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Readiness   *Readiness        `json:"readiness,omitempty"` // none: it is ready once it was started
	// ReadyTimeoutSeconds is how long that may take (30), looked at every ReadyIntervalMS (500).
	ReadyTimeoutSeconds int    `json:"ready_timeout_seconds,omitempty"`
	ReadyIntervalMS     int    `json:"ready_interval_ms,omitempty"`
	Restart             string `json:"restart,omitempty"` // never (the default), on-failure, always
}

// Readiness says when a service is ready.
type Readiness struct {
	Type    string `json:"type"`              // file, tcp, http or command
	Path    string `json:"path,omitempty"`    // of a file that is there
	Address string `json:"address,omitempty"` // that accepts a connection: 8080 or 127.0.0.1:8080
	URL     string `json:"url,omitempty"`     // that answers with a status from 200 to 399
	Command string `json:"command,omitempty"` // that ends with 0
}

// ServiceRequest names a service: status_service and stop_service.
type ServiceRequest struct {
	Action      string `json:"action"`
	ServiceName string `json:"service_name"`
}

// LogsServiceRequest reads the last lines that a service wrote.
type LogsServiceRequest struct {
	Action      string `json:"action"`
	ServiceName string `json:"service_name"`
	TailLines   int    `json:"tail_lines"` // 0: all that is kept
}

// Service is a service's state.
type Service struct {
	ServiceName string   `json:"service_name"`
	Command     string   `json:"command"`
	CWD         string   `json:"cwd"`
	State       string   `json:"state"` // running, restarting, stopped or failed
	Ready       bool     `json:"ready"`
	Restarts    int      `json:"restarts"`
	StartedAt   float64  `json:"started_at"`
	EndedAt     *float64 `json:"ended_at"`
	ExitCode    *int     `json:"exit_code"`
	StopReason  *string  `json:"stop_reason"` // why it does not run; null while it does
}

// ListServicesReply is all services that are known, by their names.
type ListServicesReply struct {
	Services []Service `json:"services"`
}

// LogsServiceReply is what a service wrote.
type LogsServiceReply struct {
	Service
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	TailLines int    `json:"tail_lines"`
	Truncated bool   `json:"truncated"` // it wrote more
}
