package project

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/cache"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// A word stands in the file as a string, and is checked by its kind as it is read, so
// that an error has its place in the file.
type word[K kind] struct{ string }

// kind is what a word can be.
type kind interface {
	image | template | isolation | user | network | allow | secret | tool | volume | port
	check(s string) error
}

type (
	image     struct{}
	template  struct{}
	isolation struct{}
	user      struct{}
	network   struct{}
	allow     struct{}
	secret    struct{}
	tool      struct{}
	volume    struct{}
	port      struct{}
)

// UnmarshalText takes what the kind does.
func (w *word[K]) UnmarshalText(b []byte) error {
	var k K
	if err := k.check(string(b)); err != nil {
		return err
	}
	w.string = string(b)
	return nil
}

type (
	duration time.Duration
	size     int64
)

// check takes the name of an image, and no path.
func (image) check(s string) error {
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || strings.HasPrefix(part, ".") {
			return fmt.Errorf("%.80q is not an image's name; a path can be named by --image alone", s)
		}
	}
	if len(s) > 512 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@") != "" {
		return fmt.Errorf("%.80q is not an image's name", s)
	}
	return nil
}

var templateName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}$`) })

// check takes the name of a template.
func (template) check(s string) error {
	if !templateName().MatchString(s) {
		return fmt.Errorf("%.80q is not a template's name", s)
	}
	return nil
}

// check takes walls with commas between them.
func (isolation) check(s string) error {
	for wall := range strings.SplitSeq(s, ",") {
		if !sandbox.ValidWall(wall) {
			return fmt.Errorf("%.80q: there is no such wall; there are %s and %s", wall, sandbox.WallGVisor, sandbox.WallProcess)
		}
	}
	return nil
}

var accountName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`) })

// check takes the name of an account.
func (user) check(s string) error {
	if !accountName().MatchString(s) {
		return fmt.Errorf("%.80q is not a user", s)
	}
	return nil
}

// check takes off and on.
func (network) check(s string) error {
	if s != sandbox.NetworkOff && s != sandbox.NetworkOn {
		return fmt.Errorf("%.80q is neither %s nor %s", s, sandbox.NetworkOff, sandbox.NetworkOn)
	}
	return nil
}

// check takes what --allow does.
func (allow) check(s string) error {
	if _, err := policy.Allow(policy.Policy{}, s); err != nil {
		return err
	}
	return nil
}

// check takes the name of a secret, and nothing that may be a value.
func (secret) check(s string) error {
	if !sandbox.ValidSecret(s) {
		return errors.New("that is no name of a secret: a letter or _, then letters, digits and _")
	}
	return nil
}

// check takes the name of a tool that has a cache.
func (tool) check(s string) error {
	if e, ok := errors.AsType[*cache.Error](cache.Check([]string{s})); ok {
		return fmt.Errorf("%w; there are %s", e, e.Hint())
	}
	return nil
}

// check takes NAME:PATH[:ro].
func (volume) check(s string) error {
	m, err := launch.ParseVolume(s)
	if err != nil {
		return err
	}
	if m.Target == sandbox.WorkspacePath {
		return errors.New("a volume as the workspace is named by --volume alone")
	}
	return nil
}

// check takes [HOSTPORT:]PORT.
func (port) check(s string) error {
	_, err := launch.ParsePorts([]string{s})
	return err
}

// UnmarshalText takes a duration, such as 90s.
func (v *duration) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	if err != nil || d < time.Millisecond {
		return fmt.Errorf("%.40q is not a duration: use one such as 90s, 30m or 2h", b)
	}
	*v = duration(d)
	return nil
}

// UnmarshalText takes a size, such as 512m.
func (v *size) UnmarshalText(b []byte) error {
	n, err := term.ParseSize(string(b))
	*v = size(n)
	return err
}
