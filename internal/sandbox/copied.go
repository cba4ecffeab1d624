package sandbox

import "context"

// Copied is how much of a workspace was copied so far, where it has to be.
type Copied struct {
	Files int64 `json:"files"` // regular files, symlinks and directories
	Bytes int64 `json:"bytes"` // of data
}

type copiedKey struct{}

// WithCopied has a Create or Start with the context returned tell f how far the copy
// of a workspace is, where one is made: a few times a second, from one goroutine, and not after the
// call has returned. f must not block.
func WithCopied(ctx context.Context, f func(Copied)) context.Context {
	return context.WithValue(ctx, copiedKey{}, f)
}

// CopiedOf returns whom to tell, as WithCopied has it. It is never nil.
func CopiedOf(ctx context.Context) func(Copied) {
	if f, ok := ctx.Value(copiedKey{}).(func(Copied)); ok {
		return f
	}
	return func(Copied) {}
}
