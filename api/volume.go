package api

import "time"

// VolumeRequest is the body of POST /v1/volumes.
type VolumeRequest struct {
	Name   string `json:"name"`             // 1 to 128 of a-z, A-Z, 0-9, _ and -
	Size   int64  `json:"size,omitempty"`   // bytes; 0: the daemon's default
	Inodes int64  `json:"inodes,omitempty"` // files; 0: one for each 16 KiB
	// From is a directory of the daemon's host of which it begins as a copy; "": it is empty.
	From string `json:"from,omitempty"`
}

// VolumeEvent is one line of the answer to a POST /v1/volumes that accepts CreateNews, where there is something to tell.
// One field is set; the last line has a volume or an error, and a stream that ends without one was cut short.
type VolumeEvent struct {
	Copied *Copied `json:"copied,omitempty"`
	Volume *Volume `json:"volume,omitempty"`
	Error  *Error  `json:"error,omitempty"`
}

// Result is what the last line has.
func (e VolumeEvent) Result() (*Volume, *Error) { return e.Volume, e.Error }

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
	HomeOf string `json:"home_of,omitempty"`
	// From is the directory of which it began as a copy; "": it began empty.
	From      string    `json:"from,omitempty"`
	Used      int64     `json:"used"`      // bytes on the host's disk; 0 where that is not known
	Sandboxes []string  `json:"sandboxes"` // names of those, running or not, that have it
	CreatedAt time.Time `json:"created_at"`
	// Skipped is what of From was not copied, and why: in the answer to its POST alone.
	Skipped []string `json:"skipped,omitempty"`
}
