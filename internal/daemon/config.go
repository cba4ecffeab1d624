// Package daemon runs Carboy's daemon: it takes the home's lock, opens its
// state, takes over what an earlier daemon left, listens, and leaves when it
// is asked to or has nothing to do. Sandboxes go on without it.
//
// It refuses to run twice in one home, to listen on TCP without keys, and a
// configuration that says anything it does not know.
package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

const (
	configName = "config.json"
	socketName = "carboy.sock"
	lockName   = "daemon.lock"
	pidName    = "daemon.pid"
	logName    = "daemon.log"
	storeName  = "carboy.db"

	maxConfig = 1 << 20
)

// Config is how a daemon runs. The fields with a JSON name are those of
// config.json in the home's Config directory. It is JSON, as the API is: one
// strict decoder serves both, and no library more is needed.
type Config struct {
	Dirs home.Dirs `json:"-"`
	// Auto says that a client started it: it leaves when idle.
	Auto bool `json:"-"`

	Listen     string   `json:"listen"`       // TCP address, "127.0.0.1:3000"; "": the unix socket alone
	APIKeyFile string   `json:"api_key_file"` // who may ask over TCP; needed with Listen
	Domain     string   `json:"domain"`       // under which sandboxes are reached as PORT-ID.DOMAIN; "": not
	Hosts      []string `json:"hosts"`        // further names by which clients call the TCP address
	MountDirs  []string `json:"mount_dirs"`   // below which mounts may be named over the unix socket; "~" is the caller's home
	IdleExit   Duration `json:"idle_exit"`    // for how long a daemon with Auto waits
}

// Duration is a time.Duration that JSON has as "5m".
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// DefaultConfig returns what holds in a home without a config.json.
func DefaultConfig(dirs home.Dirs) Config {
	return Config{
		Dirs:      dirs,
		MountDirs: []string{"~", "/home", "/srv", "/mnt", "/media", "/opt", "/tmp", "/var/tmp"},
		IdleExit:  Duration(5 * time.Minute),
	}
}

// Socket returns the path of the unix socket of a home's daemon.
func Socket(dirs home.Dirs) string { return filepath.Join(dirs.Run, socketName) }

// LogPath returns the path of the log of a home's daemon.
func LogPath(dirs home.Dirs) string { return filepath.Join(dirs.State, logName) }

// ReadConfig returns the default configuration with what config.json says.
// It need not be there.
func ReadConfig(dirs home.Dirs) (Config, error) {
	cfg := DefaultConfig(dirs)
	path := filepath.Join(dirs.Config, configName)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return cfg, nil
	}
	if err != nil {
		return cfg, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return cfg, fmt.Errorf("read configuration: %w", err)
	}
	if len(b) > maxConfig {
		return cfg, sandbox.Errorf(sandbox.Invalid, "%s: larger than %d bytes", path, maxConfig)
	}
	return cfg, cfg.parse(path, b)
}

func (c *Config) parse(path string, b []byte) error {
	err := wire.DecodeBytes(b, c)
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return sandbox.Errorf(sandbox.Invalid, "%s: %s", path, strings.TrimPrefix(e.Msg, "body: "))
	}
	return err
}

// Validate reports the first thing in c that can't be.
func (c Config) Validate() error {
	bad := func(format string, args ...any) error {
		return sandbox.Errorf(sandbox.Invalid, format, args...)
	}
	if c.Dirs == (home.Dirs{}) {
		return bad("configuration: the home's directories are missing")
	}
	if c.Listen != "" {
		if _, _, err := net.SplitHostPort(c.Listen); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "listen %.80q: not an address", c.Listen).WithHint("127.0.0.1:3000")
		}
		if c.APIKeyFile == "" {
			return sandbox.Errorf(sandbox.Invalid, "listen: TCP is served only to holders of API keys").
				WithHint("name their file: --api-key-file FILE")
		}
	} else if c.APIKeyFile != "" {
		return sandbox.Errorf(sandbox.Invalid, "api_key_file: it is for TCP, and no address is given").
			WithHint("name one: --listen ADDR")
	}
	if c.IdleExit <= 0 {
		return bad("idle_exit: it must be longer than 0")
	}
	if c.Domain != "" && !validHost(c.Domain) {
		return bad("domain %.80q: not a host's name", c.Domain)
	}
	for _, h := range c.Hosts {
		if !validHost(h) {
			return bad("hosts: %.80q is not a host's name in lower case, without a port", h)
		}
	}
	for _, d := range c.MountDirs {
		if d != "~" && !strings.HasPrefix(d, "~/") && (!filepath.IsAbs(d) || filepath.Clean(d) != d) || d == "/" {
			return bad(`mount_dirs: %.80q is neither an absolute path nor below "~"`, d)
		}
	}
	return nil
}

// validHost reports whether s is a name or an address as a Host header has
// it, without a port.
func validHost(s string) bool {
	return s != "" && len(s) <= 253 && !slices.ContainsFunc([]byte(s), func(c byte) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.'
	})
}
