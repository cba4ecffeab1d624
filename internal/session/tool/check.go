package tool

import (
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/tools"
)

const (
	noteBytes   = 512             // of a text in place of a line that is too long
	lineSuffix  = 32              // characters that follow a line that was cut
	maxSkipped  = 16              // names of directories that were not entered
	maxPathByte = 3 * (4096 + 64) // of a path whose bytes were all replaced
)

// codes are those of failures.
var codes = []string{
	tools.ToolInvalid, tools.ToolEscapes, tools.ToolNotFound, tools.ToolDenied, tools.ToolTooLarge, tools.ToolNoMatch,
	tools.ToolAmbiguous, tools.ToolNoSpace, tools.ToolConflict, tools.ToolOutOfTime, tools.ToolIncomplete, tools.ToolFailed,
}

var causes = []tools.Cause{
	"", tools.ByLines, tools.ByBytes, tools.ByEntries, tools.ByMatches, tools.ByScan, tools.ByFiles, tools.ByLine, tools.ByDepth, tools.ByTime,
}

// checkFailure makes the outcome of a call one to hand on.
func checkFailure(f *tools.Failure) error {
	switch {
	case f.OK:
		f.Error, f.Code = "", ""
		return nil
	case f.Error == "":
		return broken("a result without an outcome")
	}
	f.Error = clean(f.Error)
	if !slices.Contains(codes, f.Code) {
		f.Code = tools.ToolFailed
	}
	return nil
}

// checkCause sees to it that a result that was cut says why, and no other does.
func checkCause(truncated bool, by tools.Cause) error {
	if !slices.Contains(causes, by) || truncated != (by != "") {
		return broken("a result that is cut: %v, by %.16q", truncated, by)
	}
	return nil
}

func checkRead(r *tools.ReadResult) error {
	if err := checkCause(r.Truncated, r.TruncatedBy); err != nil {
		return err
	}
	parts := 0
	for _, there := range []bool{r.TextRange != nil, r.ByteRange != nil, r.Listing != nil} {
		if there {
			parts++
		}
	}
	if parts != 1 || r.MaxBytes < 0 || r.MaxBytes > tools.MaxToolBytes {
		return broken("a read of %d kinds, of %d bytes", parts, r.MaxBytes)
	}
	limit := tools.MaxToolBytes + noteBytes
	switch {
	case r.ByteRange != nil:
		b := r.ByteRange
		data, err := base64.StdEncoding.DecodeString(r.Content)
		if err != nil || len(data) != b.Length || b.Length > tools.MaxToolBytes || b.ByteOffset < 0 || b.SizeBytes < 0 ||
			b.Encoding != tools.EncodingBase64 || b.HasMore != (b.NextByteOffset != nil) {
			return broken("a range of bytes that is none")
		}
		if b.HasMore && *b.NextByteOffset != b.ByteOffset+int64(b.Length) {
			return broken("a range of bytes that goes on elsewhere")
		}
		return nil
	case r.TextRange != nil:
		x := r.TextRange
		if x.StartLine < 1 || x.EndLine < x.StartLine-1 || x.MaxLines < 0 || x.MaxLines > tools.MaxReadLines ||
			x.NextOffset != nil && *x.NextOffset != x.EndLine+1 {
			return broken("a range of lines that is none")
		}
	case !r.IsDirectory || r.Total < 0:
		return broken("a list that is none")
	}
	if len(r.Content) > limit {
		return broken("a content of %d bytes", len(r.Content))
	}
	return nil
}

func (t *Tools) checkGlob(r *tools.GlobResult) error {
	size := 0
	for _, m := range r.Matches {
		if !t.inside(m) {
			return broken("a match that was not asked for")
		}
		size += len(m) + 1
	}
	if len(r.Matches) > tools.GlobMatches || r.Total < len(r.Matches) || size > tools.MaxToolBytes+1 {
		return broken("%d matches of %d bytes", len(r.Matches), size)
	}
	if r.Matches == nil {
		r.Matches = []string{}
	}
	if err := checkSearched(&r.Searched); err != nil {
		return err
	}
	return checkCause(r.Truncated, r.TruncatedBy)
}

func (t *Tools) checkGrep(r *tools.GrepResult) error {
	if len(r.Matches) > tools.GrepMatches || r.Total != len(r.Matches) {
		return broken("%d matches, said to be %d", len(r.Matches), r.Total)
	}
	size := 0
	for _, m := range r.Matches {
		if m.File != t.opts.Root && !t.inside(m.File) || m.Line < 1 || utf8.RuneCountInString(m.Content) > tools.GrepLineChars+lineSuffix {
			return broken("a line that was not asked for")
		}
		size += len(m.File) + len(m.Content)
	}
	if size > tools.MaxToolBytes {
		return broken("lines of %d bytes", size)
	}
	if r.Matches == nil {
		r.Matches = []tools.GrepMatch{}
	}
	if err := checkSearched(&r.Searched); err != nil {
		return err
	}
	return checkCause(r.Truncated, r.TruncatedBy)
}

// inside reports whether a path is one below the root.
func (t *Tools) inside(p string) bool {
	below := strings.TrimSuffix(t.opts.Root, "/") + "/"
	return strings.HasPrefix(p, below) && len(p) <= maxPathByte
}

func checkSearched(s *tools.Searched) error {
	if s.Files < 0 || s.Binary < 0 || s.Unreadable < 0 || len(s.Skipped) > maxSkipped {
		return broken("a search that is none")
	}
	for i, name := range s.Skipped {
		if len(name) > 64 {
			return broken("a name of %d bytes", len(name))
		}
		s.Skipped[i] = clean(name)
	}
	return nil
}
