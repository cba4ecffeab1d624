package tool

import (
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
)

// Exec returns what a model is shown of how a command ended: no stream longer
// than 50 KiB, and both together in a preview no longer than that.
func Exec(r sessions.ToolResult) sessions.ExecToolResult {
	out := sessions.ExecToolResult{ToolResult: r}
	var capped bool
	out.Stdout, capped = first(r.Stdout, tools.MaxToolBytes)
	out.StdoutTruncated = r.StdoutTruncated || capped
	out.Stderr, capped = first(r.Stderr, tools.MaxToolBytes)
	out.StderrTruncated = r.StderrTruncated || capped
	preview := out.Stdout + out.Stderr
	if out.Stdout != "" && out.Stderr != "" {
		preview = "stdout:\n" + out.Stdout + "\n\nstderr:\n" + out.Stderr
	}
	if out.Preview, capped = first(preview, tools.MaxToolBytes); capped {
		out.TruncatedBy = tools.ByBytes
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
