package api

import "time"

// Error is the body of every answer outside 2xx below /v1/, and of what the
// daemon itself answers in a guest's place.
type Error struct {
	Code    string `json:"code"`    // "invalid", "not_found", "conflict", "denied", "unsupported", "exhausted", "unavailable" or "internal"
	Message string `json:"message"` // fit to show
	Hint    string `json:"hint,omitempty"`
	// Again says that nothing of the request was done, or that it was undone, as the
	// daemon leaves: the next one may be asked the same.
	Again bool `json:"again,omitempty"`
}

// Version is the answer of GET /v1/version.
type Version struct {
	Version string `json:"version"`
	API     int    `json:"api"` // Current; two programs work together where it is the same
}

// Current is the version of the protocol that this package describes.
const Current = 1

// NoSuchPath ends the message of the not-found error for a method and path that
// a daemon does not have: an older one, or anything that is no part of the API.
const NoSuchPath = "the API has no such path and method"

// Status is the answer of GET /v1/status.
type Status struct {
	Version   string    `json:"version"`
	PID       int       `json:"pid"`
	Home      string    `json:"home"` // the directory of the daemon's state
	Socket    string    `json:"socket"`
	Listen    []string  `json:"listen"` // TCP addresses
	StartedAt time.Time `json:"started_at"`
	Auto      bool      `json:"auto"`      // started by a client; leaves when idle
	Sandboxes int       `json:"sandboxes"` // how many there are, of every owner
	Running   int       `json:"running"`
	Backends  []string  `json:"backends"`   // the walls it can build
	PoolReady int       `json:"pool_ready"` // instances that are warm and nobody's
	PoolSize  int       `json:"pool_size"`  // how many there are to be
}

// Headers that the daemon adds to its answers. A guest can't set them.
const (
	// HeaderNotice carries what a caller should be told, such as that the
	// sandbox was started again and what was lost by that.
	HeaderNotice = "Carboy-Notice"
	// HeaderStarts carries how often the sandbox had been started when it
	// answered.
	HeaderStarts = "Carboy-Starts"
	// HeaderError marks an answer as the daemon's own error, with its code:
	// the guest did not see the request, or did not answer it.
	HeaderError = "Carboy-Error"
)
