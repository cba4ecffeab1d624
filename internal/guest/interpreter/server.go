package interpreter

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// port is where E2B's clients look for the server.
const port = 49999

const maxContexts = 32

//go:embed python/carboy_*.py
var scripts embed.FS

const launcher = "carboy_kernel.py"

// Options are what a server works with. Dir is required.
type Options struct {
	Dir string       // a directory of its own, for sockets and scripts
	Cwd string       // where kernels start; default: HOME of Env, or /
	Env []string     // what kernels have, KEY=VALUE each
	Log *slog.Logger // default: none
}

// Server is the code interpreter. Close ends its kernels.
type Server struct {
	o      Options
	mux    *http.ServeMux
	ctx    context.Context // ends the kernels
	cancel context.CancelFunc
	up     chan struct{} // closed once the first kernel runs
	upOnce sync.Once
	work   sync.WaitGroup // readers of kernels, and cells

	mu       sync.Mutex
	scopes   []*scope          // in the order they were made
	defaults map[string]*scope // by language
	making   map[string]*sync.Mutex
}

// New writes what kernels are started with into o.Dir.
func New(o Options) (*Server, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s := &Server{o: o, up: make(chan struct{}), defaults: map[string]*scope{}, making: map[string]*sync.Mutex{}}
	s.o.Cwd = cmp.Or(o.Cwd, s.getenv("HOME"), "/")
	files, err := fs.Glob(scripts, "python/*.py")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		data, err := scripts.ReadFile(f)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(o.Dir, filepath.Base(f)), data, 0o600); err != nil {
			return nil, fmt.Errorf("write the kernel's scripts: %w", err)
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mux = s.routes()
	return s, nil
}

// Start starts the default context's kernel. The error is a *missingError
// where the image has nothing to run one with.
func (s *Server) Start(ctx context.Context) error {
	c, err := s.defaultScope(python)
	if err != nil {
		return err
	}
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.leave()
	if _, err = c.kernel(ctx); err == nil {
		s.upOnce.Do(func() { close(s.up) })
	}
	return err
}

// Close ends all kernels, and waits for them.
func (s *Server) Close() {
	s.mu.Lock()
	scopes := slices.Clone(s.scopes)
	s.mu.Unlock()
	s.cancel()
	for _, c := range scopes {
		c.remove()
	}
	s.work.Wait()
}

// defaultScope returns the context of cells that name none, by language, and
// makes it where there is none.
func (s *Server) defaultScope(language string) (*scope, error) {
	s.mu.Lock()
	m := s.making[language]
	if m == nil {
		if len(s.making) >= maxContexts {
			s.mu.Unlock()
			return nil, errContexts
		}
		m = &sync.Mutex{}
		s.making[language] = m
	}
	s.mu.Unlock()
	m.Lock()
	defer m.Unlock()
	s.mu.Lock()
	c := s.defaults[language]
	s.mu.Unlock()
	if c != nil {
		return c, nil
	}
	c, err := s.newScope(language, s.o.Cwd)
	if err != nil {
		return nil, err
	}
	return c, s.add(c, true)
}

var errContexts = fmt.Errorf("there are %d contexts already: remove one", maxContexts)

func (s *Server) add(c *scope, byDefault bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.scopes) >= maxContexts {
		return errContexts
	}
	s.scopes = append(s.scopes, c)
	if byDefault {
		s.defaults[c.language] = c
	}
	return nil
}

func (s *Server) find(id string) *scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.scopes, func(c *scope) bool { return c.id == id }); i >= 0 {
		return s.scopes[i]
	}
	return nil
}

// drop takes a context out of the list. A default one is made anew when it is
// asked for.
func (s *Server) drop(c *scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scopes = slices.DeleteFunc(s.scopes, func(o *scope) bool { return o == c })
	if s.defaults[c.language] == c {
		delete(s.defaults, c.language)
	}
}
