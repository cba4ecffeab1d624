package api

import "time"

// Image is a root file system that the daemon keeps for its caller.
type Image struct {
	Name      string      `json:"name"`   // as the caller calls it: "debian:12", or with its digest; "" where it has none
	Digest    string      `json:"digest"` // of its manifest: "sha256:" and 64 hexadecimal digits
	OS        string      `json:"os,omitempty"`
	Arch      string      `json:"arch,omitempty"`
	Size      int64       `json:"size"`   // bytes of its layers, unpacked
	Layers    int         `json:"layers"` // how many there are
	Config    ImageConfig `json:"config"`
	Notes     []string    `json:"notes,omitempty"` // what was left out of it, such as devices
	CreatedAt time.Time   `json:"created_at,omitzero"`
}

// ImageConfig is what an image says of the commands that run in it.
type ImageConfig struct {
	User       string   `json:"user,omitempty"`        // "" or "root": none of its own
	Env        []string `json:"env,omitempty"`         // the names alone
	WorkingDir string   `json:"working_dir,omitempty"` // absolute
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

// PullRequest is the body of POST /v1/images/pull.
type PullRequest struct {
	Ref  string        `json:"ref"`            // "debian:12", or with a digest, which is then checked
	Auth *RegistryAuth `json:"auth,omitempty"` // none: as anybody
}

// RegistryAuth is what a registry is shown. The daemon uses it for one pull
// and keeps none of it.
type RegistryAuth struct {
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	IdentityToken string `json:"identity_token,omitempty"`
	RegistryToken string `json:"registry_token,omitempty"`
}

// String hides everything, so that no log or error ever has it.
func (RegistryAuth) String() string { return "(hidden)" }

// GoString hides everything.
func (RegistryAuth) GoString() string { return "(hidden)" }

// ImageProgress says how far the work on one layer is, or on the whole image
// where Layer is empty.
type ImageProgress struct {
	Layer string `json:"layer,omitempty"` // the start of its digest
	Phase string `json:"phase"`           // "resolve", "download", "unpack" or "done"
	Done  int64  `json:"done,omitempty"`  // bytes
	Total int64  `json:"total,omitempty"` // bytes; 0: not known
}

// ImageEvent is one line of the answer of POST /v1/images/pull and of POST
// /v1/images/import. One field is set; the last line has an image or an error,
// and a stream that ends without one was cut short.
type ImageEvent struct {
	Progress *ImageProgress `json:"progress,omitempty"`
	Image    *Image         `json:"image,omitempty"`
	Error    *Error         `json:"error,omitempty"`
}

// ImageGC is the answer of POST /v1/images/gc.
type ImageGC struct {
	Removed []string `json:"removed"` // digests of images that nothing named or used
	Bytes   int64    `json:"bytes"`   // how much that made free
}
