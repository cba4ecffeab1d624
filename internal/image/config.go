package image

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Bounds of what an image says of itself.
const (
	maxUser    = 256
	maxPath    = 4096
	maxWord    = 128 << 10 // one argument or variable: the kernel takes no longer one
	maxWords   = 4096
	maxText    = 1 << 20 // all arguments, all variables or all labels together
	maxLayers  = 127     // an overlay holds some 500, and its mount options one page
	maxNesting = 64      // of JSON
)

var signalRE = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([1-9]|[1-5][0-9]|6[0-4]|(SIG)?[A-Z][A-Z0-9]{1,9}([+-][0-9]{1,2})?)$`)
})

// configFile is the part of an image's configuration that matters here.
type configFile struct {
	Created time.Time `json:"created"`
	OS      string    `json:"os"`
	Arch    string    `json:"architecture"`
	RootFS  struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	Config struct {
		User       string
		Env        []string
		WorkingDir string
		Entrypoint []string
		Cmd        []string
		Labels     map[string]string
		StopSignal string
	} `json:"config"`
	notes []string
}

func invalid(format string, args ...any) *sandbox.Error {
	return sandbox.Errorf(sandbox.Invalid, format, args...)
}

// parseConfig reads and checks the configuration of an image with so many
// layers.
func parseConfig(b []byte, layers int) (*configFile, error) {
	f := &configFile{}
	if err := parseJSON("image configuration", b, f); err != nil {
		return nil, err
	}
	f.assume()
	if f.OS != "linux" || f.Arch != runtime.GOARCH {
		return nil, sandbox.Errorf(sandbox.Unsupported, "the image is for %s/%s, and this machine is linux/%s",
			term.Escape(short(f.OS)), term.Escape(short(f.Arch)), runtime.GOARCH)
	}
	ids := f.RootFS.DiffIDs
	switch {
	case f.RootFS.Type != "layers":
		return nil, invalid("image configuration: rootfs.type is %q, not \"layers\"", short(f.RootFS.Type))
	case len(ids) != layers:
		return nil, invalid("image configuration: rootfs.diff_ids has %d entries, and the manifest %d layers", len(ids), layers)
	case layers == 0:
		return nil, invalid("the image has no layer")
	case layers > maxLayers:
		return nil, tooManyLayers(layers)
	}
	for _, id := range ids {
		if !digestRE().MatchString(id) {
			return nil, invalid("image configuration: rootfs.diff_ids: %q is not sha256: and 64 lower-case hexadecimal digits", short(id))
		}
	}
	return f, f.config().check()
}

// assume takes what does not say its platform, as some builders write it, for one of
// this machine, and notes so.
func (f *configFile) assume() {
	if f.OS != "" && f.Arch != "" {
		return
	}
	if f.OS == "" {
		f.OS = "linux"
	}
	if f.Arch == "" {
		f.Arch = runtime.GOARCH
	}
	f.notes = append(f.notes, fmt.Sprintf("the image does not say for which platform it is: it is taken for %s/%s",
		term.Escape(short(f.OS)), term.Escape(short(f.Arch))))
}

func tooManyLayers(n int) error {
	return invalid("the image has %d layers, and at most %d can be mounted together", n, maxLayers).
		WithHint("build it anew with fewer, or flatten it: docker export")
}

func (f *configFile) config() Config {
	c := f.Config
	return Config{c.User, c.Env, c.WorkingDir, c.Entrypoint, c.Cmd, c.Labels, c.StopSignal}
}

// check refuses what no process could be started with, and what is out of all
// proportion.
func (c Config) check() error {
	switch {
	case len(c.User) > maxUser || strings.ContainsFunc(c.User, control):
		return invalid("image configuration: User: longer than %d bytes, or with a control character", maxUser)
	case len(c.WorkingDir) > maxPath || strings.Contains(c.WorkingDir, "\x00"):
		return invalid("image configuration: WorkingDir: longer than %d bytes, or with a NUL", maxPath)
	case c.WorkingDir != "" && !path.IsAbs(c.WorkingDir):
		return invalid("image configuration: WorkingDir: %s is not absolute", term.Escape(short(c.WorkingDir)))
	case c.StopSignal != "" && !signalRE().MatchString(c.StopSignal):
		return invalid("image configuration: StopSignal: %s is no signal", term.Escape(short(c.StopSignal)))
	}
	for _, l := range []struct {
		what  string
		words []string
	}{{"Env", c.Env}, {"Entrypoint", c.Entrypoint}, {"Cmd", c.Cmd}} {
		if err := checkWords(l.what, l.words); err != nil {
			return err
		}
	}
	for _, e := range c.Env {
		if strings.IndexByte(e, '=') < 1 {
			return invalid("image configuration: Env: %s is not NAME=value", term.Escape(short(e)))
		}
	}
	var labels []string
	for k, v := range c.Labels {
		if k == "" {
			return invalid("image configuration: Labels: one has no name")
		}
		labels = append(labels, k+v)
	}
	return checkWords("Labels", labels)
}

func checkWords(what string, words []string) error {
	total := 0
	for _, w := range words {
		total += len(w)
		if strings.Contains(w, "\x00") {
			return invalid("image configuration: %s: %s has a NUL", what, term.Escape(short(w)))
		}
		if len(w) >= maxWord {
			return invalid("image configuration: %s: %s… has %d bytes, at most %d", what, term.Escape(short(w)), len(w), maxWord-1)
		}
	}
	if len(words) > maxWords || total > maxText {
		return invalid("image configuration: %s: %d entries of %d bytes, at most %d of %d", what, len(words), total, maxWords, maxText)
	}
	return nil
}

func control(r rune) bool { return r < ' ' || r == 0x7f }

// short cuts hostile text to what fits an error message.
func short(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most]
	}
	return s
}

// parseJSON reads one JSON value that is nested within reason.
func parseJSON(what string, b []byte, v any) error {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxNesting {
				return invalid("%s: JSON nested more than %d deep", what, maxNesting)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	if err := json.Unmarshal(b, v); err != nil {
		return invalid("%s: not the JSON that it should be: %s", what, term.Escape(short(err.Error())))
	}
	return nil
}
