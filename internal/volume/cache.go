package volume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Cache returns the caller's volume that keeps the caches of builds in dir, and
// makes it where there is none: of the size of a volume that asks for none. It goes
// by the directory itself: moved, it keeps its cache; another one at its path has
// its own.
func (s *Service) Cache(ctx context.Context, c sandbox.Caller, dir sandbox.HostDir) (Volume, error) {
	return s.kept(ctx, c, dir, "")
}

// maxHome is how long the name may be that a home goes by.
const maxHome = 32

// Home is Cache for what a program keeps in its home, such as its history: each
// program that is named has one of its own for each directory.
func (s *Service) Home(ctx context.Context, c sandbox.Caller, dir sandbox.HostDir, program string) (Volume, error) {
	if program == "" || len(program) > maxHome || strings.Trim(program, nameLetters) != "" {
		return Volume{}, sandbox.Errorf(sandbox.Invalid, "home %.80q: not a name", program).
			WithHint("1 to %d of a-z, A-Z, 0-9, _ and -, such as claude", maxHome)
	}
	return s.kept(ctx, c, dir, program)
}

// kept is Cache, and Home where home is one's name.
func (s *Service) kept(ctx context.Context, c sandbox.Caller, dir sandbox.HostDir, home string) (Volume, error) {
	if c.Owner == "" || dir.Ino == 0 {
		return Volume{}, sandbox.Errorf(sandbox.Denied, "cache: it needs an owner and a directory")
	}
	s.making.Lock()
	defer s.making.Unlock()
	for _, v := range s.owned(c.Owner) {
		if v.Home == home && v.Cache.Same(dir) {
			if s.asked[v.ID] > 0 {
				s.asked[v.ID]++
			}
			return s.moved(v, dir), nil
		}
	}
	size, err := s.size(sandbox.Caller{Admin: true}, New{})
	if err != nil {
		return Volume{}, err
	}
	v, err := s.begin(c, Volume{Name: cacheName(dir, home), Cache: dir, Home: home}, size)
	if err == nil {
		v, err = s.finish(ctx, v, size, nil)
	}
	if err == nil {
		s.asked[v.ID] = 1
	}
	return v, err
}

// Discard removes a cache or a home that was made for a sandbox of which nothing came. It
// fails with Conflict where anybody has asked for it besides, or may have: somebody's
// history could be in it.
func (s *Service) Discard(ctx context.Context, c sandbox.Caller, ref string) error {
	s.making.Lock() // nobody asks for it meanwhile
	defer s.making.Unlock()
	v, err := s.Get(ctx, c, ref)
	if err != nil {
		return err
	}
	if s.asked[v.ID] != 1 {
		return sandbox.Errorf(sandbox.Conflict, "volume %s: it was there before, or others have asked for it", v.Name).
			WithHint("carboy volume rm %s removes it all the same", v.Name)
	}
	if err := s.Remove(ctx, c, v.ID); err != nil {
		return err
	}
	delete(s.asked, v.ID)
	return nil
}

// moved notes where a cache's directory is now. Where that can't be written, the
// next one who asks does.
func (s *Service) moved(v Volume, dir sandbox.HostDir) Volume {
	if v.Cache == dir {
		return v
	}
	v.Cache = dir
	b, err := json.Marshal(v)
	if err == nil {
		err = durable.Write(filepath.Join(s.root, v.ID, recordName), b, durable.Options{})
	}
	if err != nil {
		s.log.Warn("note where a cache's directory is", "id", v.ID, "error", err)
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.volumes[v.ID]; ok { // it may have been removed meanwhile
		s.volumes[v.ID] = v
	}
	return v
}

// cacheName names the cache of a directory, or a home for it, for its owner to read.
func cacheName(dir sandbox.HostDir, home string) string {
	const most = 40
	base := strings.Trim(strings.Map(func(r rune) rune {
		if strings.ContainsRune(nameLetters, r) {
			return r
		}
		return '-'
	}, filepath.Base(dir.Path)), "-")
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %s", dir.Dev, dir.Ino, dir.Born, dir.Path))
	kind := "cache-"
	if home != "" {
		kind = "home-" + home + "-"
	}
	return kind + base[:min(len(base), most)] + "-" + hex.EncodeToString(sum[:4])
}
