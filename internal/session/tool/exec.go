package tool

import (
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/box"
)

// Exec returns what a model is shown of how a command ended: no stream longer
// than 50 KiB, and both together in a preview no longer than that.
func Exec(r box.ToolResult) box.ExecToolResult {
	out := box.ExecToolResult{ToolResult: r}
	var capped bool
	out.Stdout, capped = first(r.Stdout, box.MaxToolBytes)
	out.StdoutTruncated = r.StdoutTruncated || capped
	out.Stderr, capped = first(r.Stderr, box.MaxToolBytes)
	out.StderrTruncated = r.StderrTruncated || capped
	preview := out.Stdout + out.Stderr
	if out.Stdout != "" && out.Stderr != "" {
		preview = "stdout:\n" + out.Stdout + "\n\nstderr:\n" + out.Stderr
	}
	if out.Preview, capped = first(preview, box.MaxToolBytes); capped {
		out.TruncatedBy = box.ByBytes
	}
	out.Truncated = out.StdoutTruncated || out.StderrTruncated || capped
	return out
}

// first returns what of a text fits into limit bytes, whole characters only,
// and whether that is less than all.
func first(text string, limit int) (string, bool) {
	if len(text) <= limit {
		return text, false
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit], true
}
