package files

import (
	"context"
	"io"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

// Act runs fn with a user's rights, where the user's files are. It is for short work:
// a user has few threads. See Workers.Do for what fn must not do.
func (s *Service) Act(ctx context.Context, a account.Account, fn func() error) error {
	return s.act(ctx, a, fn)
}

// Stream is Act for work that lasts as long as its client likes, as that on an archive.
func (s *Service) Stream(ctx context.Context, a account.Account, fn func() error) error {
	return s.streams.Do(ctx, a, fn)
}

// Put makes a file of what r has, or replaces what is in it, and makes the directories
// above it. After an error it is as after an upload that failed.
func (s *Service) Put(ctx context.Context, a account.Account, p string, r io.Reader) error {
	return (&uploader{s: s, ctx: ctx, account: a}).file(p, r)
}
