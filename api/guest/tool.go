package guest

// ClearRequest is the body of POST /carboy/tools/clear, which removes what is
// at a path below the root, and all that is in it. No link is followed, on the
// way or below. What is not there is no error.
type ClearRequest struct {
	Path string `json:"path"`
	// Keep makes a directory that was there again, empty.
	Keep bool `json:"keep,omitempty"`
}

// CollectRequest is the body of POST /carboy/tools/collect. The answer is a tar
// of the regular files in the directory Path, by their names below it, within
// the limits of attachments. Its last entry is called CollectReport and has a
// CollectAnswer in JSON. A directory that is not there is an empty one.
type CollectRequest struct {
	Path string `json:"path"`
}

// CollectReport is the name of an archive's last entry; no file's name below a
// directory begins with a slash.
const CollectReport = "/report"

// CollectAnswer says what an archive has, and what it has not.
type CollectAnswer struct {
	Files   int           `json:"files"`
	Skipped []CollectSkip `json:"skipped"`
}

// CollectSkip is what was left out, and why.
type CollectSkip struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}
