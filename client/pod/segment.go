package pod

import (
	"encoding/json"
	"fmt"

	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// The kinds of segments.
const (
	SegmentText           = "text"
	SegmentPaste          = "paste"
	SegmentFileRef        = "file_ref"        // @path
	SegmentKnowledgeRef   = "knowledge_ref"   // #slug
	SegmentWorkflowInvoke = "workflow_invoke" // /slug
	SegmentUnknown        = "unknown"         // what another version has
)

// Segment is a part of what an agent is given. Which fields count, its kind says.
type Segment struct {
	Kind    string
	Content string // of text and paste
	ID      string // of paste
	Chars   int    // of paste
	Lines   int    // of paste
	Path    string // of file_ref
	Slug    string // of knowledge_ref and workflow_invoke
}

// Text is a segment of text.
func Text(content string) Segment { return Segment{Kind: SegmentText, Content: content} }

// wireSegment has the fields that the kind has, and no others.
type wireSegment struct {
	Kind    string  `json:"kind"`
	ID      *string `json:"id,omitempty"`
	Chars   *int    `json:"chars,omitempty"`
	Lines   *int    `json:"lines,omitempty"`
	Content *string `json:"content,omitempty"`
	Path    *string `json:"path,omitempty"`
	Slug    *string `json:"slug,omitempty"`
}

// MarshalJSON writes the fields of the segment's kind, empty ones too.
func (s Segment) MarshalJSON() ([]byte, error) {
	w := wireSegment{Kind: s.Kind}
	switch s.Kind {
	case SegmentText:
		w.Content = &s.Content
	case SegmentPaste:
		w.ID, w.Chars, w.Lines, w.Content = &s.ID, &s.Chars, &s.Lines, &s.Content
	case SegmentFileRef:
		w.Path = &s.Path
	case SegmentKnowledgeRef, SegmentWorkflowInvoke:
		w.Slug = &s.Slug
	case SegmentUnknown:
	default:
		return nil, fmt.Errorf("there is no segment of the kind %.40q", s.Kind)
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads a segment; one of a kind that is not known becomes SegmentUnknown.
func (s *Segment) UnmarshalJSON(b []byte) error {
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := strict.Known(b, &kind); err != nil {
		return err
	}
	var w wireSegment
	var need func() bool
	switch kind.Kind {
	case SegmentText:
		need = func() bool { return w.Content != nil }
	case SegmentPaste:
		need = func() bool { return w.Content != nil && w.ID != nil && w.Chars != nil && w.Lines != nil }
	case SegmentFileRef:
		need = func() bool { return w.Path != nil }
	case SegmentKnowledgeRef, SegmentWorkflowInvoke:
		need = func() bool { return w.Slug != nil }
	case "":
		return fmt.Errorf("a segment has no kind")
	default:
		*s = Segment{Kind: SegmentUnknown}
		return nil
	}
	if err := strict.Known(b, &w); err != nil {
		return err
	}
	if !need() {
		return fmt.Errorf("a segment of the kind %s lacks a field", kind.Kind)
	}
	*s = Segment{Kind: kind.Kind, Content: of(w.Content), ID: of(w.ID), Chars: of(w.Chars), Lines: of(w.Lines), Path: of(w.Path), Slug: of(w.Slug)}
	return nil
}

func of[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
