package api

import "time"

// VolumeRequest is the body of POST /v1/volumes.
type VolumeRequest struct {
	Name   string `json:"name"`             // 1 to 128 of a-z, A-Z, 0-9, _ and -
	Size   int64  `json:"size,omitempty"`   // bytes; 0: the daemon's default
	Inodes int64  `json:"inodes,omitempty"` // files; 0: one for each 16 KiB
}

// Volume is a disk that outlives sandboxes, and that several can mount. GET
// /v1/volumes lists the caller's.
type Volume struct {
	ID     string `json:"id"`
	Name   string `json:"name"` // its owner has no other of that name
	Owner  string `json:"owner"`
	Size   int64  `json:"size"`   // bytes
	Inodes int64  `json:"inodes"` // files
	// Enforced says whether Size and Inodes are kept to; Reason says why not.
	Enforced bool   `json:"enforced"`
	Reason   string `json:"reason,omitempty"`
	// CacheOf is the directory whose builds' caches it keeps, as it was seen last; ""
	// for a volume that is no cache.
	CacheOf string `json:"cache_of,omitempty"`
	// HomeOf is the program whose home's directories it keeps for CacheOf, such as
	// "claude"; "": it keeps no home's.
	HomeOf    string    `json:"home_of,omitempty"`
	Used      int64     `json:"used"`      // bytes on the host's disk; 0 where that is not known
	Sandboxes []string  `json:"sandboxes"` // names of those, running or not, that have it
	CreatedAt time.Time `json:"created_at"`
}
