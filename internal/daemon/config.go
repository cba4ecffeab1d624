// Package daemon runs Carboy's daemon: it takes the home's lock, opens its
// state, takes over what an earlier daemon left, listens, and leaves when it
// is asked to or has nothing to do. Sandboxes go on without it.
//
// It refuses to run twice in one home, to listen on TCP without keys, and a
// configuration that says anything it does not know.
package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/template"
	"github.com/carboy-sandbox/carboy/internal/tenant/meter"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
	"github.com/carboy-sandbox/carboy/internal/volume"
)

const (
	configName = "config.json"
	storeName  = "carboy.db"

	maxConfig = 1 << 20
	maxPool   = 100 // instances of a kind
)

// Config is how a daemon runs. The fields with a JSON name are those of
// config.json in the home's Config directory. It is JSON, as the API is: one
// strict decoder serves both, and no library more is needed.
type Config struct {
	Dirs home.Dirs `json:"-"`
	// Auto says that a client started it: it leaves when idle.
	Auto bool `json:"-"`

	Listen     string `json:"listen"`       // TCP address, "127.0.0.1:3000"; "": the unix socket alone
	APIKeyFile string `json:"api_key_file"` // who may ask over TCP, beside the keys that were made
	// TLSCert and TLSKey are files in PEM: with them the TCP address speaks TLS
	// alone. They are read again when they have changed.
	TLSCert string   `json:"tls_cert"`
	TLSKey  string   `json:"tls_key"`
	Domain  string   `json:"domain"` // under which sandboxes are reached as PORT-ID.DOMAIN; "": not
	Hosts   []string `json:"hosts"`  // further names by which clients call the TCP address
	// E2BInternet gives the public internet to sandboxes that are made by way of
	// E2B's API, whose clients ask for it unless they are told otherwise.
	E2BInternet bool `json:"e2b_internet"`
	// E2BPublicTraffic opens the ports of sandboxes that are made by way of E2B's
	// API to everybody who reaches the TCP address and knows a sandbox's ID, as E2B
	// does. Without it each has a traffic token, and asks for it.
	E2BPublicTraffic bool `json:"e2b_public_traffic"`
	// E2BIsolation is the wall of sandboxes that are made by way of E2B's API,
	// which has no word for it; "": sandbox.DefaultIsolation.
	E2BIsolation string `json:"e2b_isolation"`
	// WeakestIsolation is the weakest wall that sandboxes of keys may have where
	// neither the key nor Limits say otherwise; "": sandbox.WallGVisor. Users of the
	// unix socket have none.
	WeakestIsolation string `json:"weakest_isolation"`
	// E2BSudo is sandbox.Spec.Sudo of sandboxes that are made by way of E2B's
	// API, and of templates' builds; true by default.
	E2BSudo bool `json:"e2b_sudo"`
	// BuildNetwork is what the commands of templates' builds may reach: "off",
	// the default, "on", or "policy": what BuildPolicy allows.
	BuildNetwork string `json:"build_network"`
	// BuildPolicy is a policy as a sandbox's: see docs/policy.md.
	BuildPolicy json.RawMessage `json:"build_policy"`
	BuildTime   Duration        `json:"build_time"` // that one build may take
	// BuildCache bounds what the steps of one owner's builds led to and is kept
	// for later builds.
	BuildCache Size `json:"build_cache"`
	// MCPServers is the catalogue of servers that sandboxes of the template
	// mcp-gateway may be asked to run, by name: see docs/mcp-in-sandbox.md.
	MCPServers json.RawMessage `json:"mcp_servers"`

	MountDirs []string `json:"mount_dirs"` // below which mounts may be named over the unix socket; "~" is the caller's home
	Resolvers []string `json:"resolvers"`  // whom gates ask for names, as "ADDRESS" or "ADDRESS:PORT"; none: the machine's own
	IdleExit  Duration `json:"idle_exit"`  // for how long a daemon with Auto waits
	// StartTime is how long the agent of a sandbox that starts may take to answer.
	StartTime Duration `json:"start_time"`
	// MeasureTime is how long it may take to measure what a sandbox uses: one that takes
	// longer is left alone for a while.
	MeasureTime Duration `json:"measure_time"`
	Pool        *int     `json:"pool"`        // instances of each kind that are kept warm; nil: see PoolSize
	PoolMemory  Size     `json:"pool_memory"` // bytes that all of them may take together, by an estimate
	// Limits are what each owner may have: "key:ID" for a team, "uid:1000" for a
	// user of the machine, "default" for teams that are not named.
	Limits map[string]Limits `json:"limits"`

	VolumeSize      Size `json:"volume_size"`       // bytes of a volume that asks for none
	VolumeMaxSize   Size `json:"volume_max_size"`   // the most that one may ask for
	VolumesPerOwner int  `json:"volumes_per_owner"` // how many one user or key may have

	Box Box `json:"box"` // sessions

	Approvals Approvals `json:"approvals"` // who is told of what sandboxes ask
}

// servedPool is the default pool of a daemon that is there to serve.
const servedPool = 2

// PoolSize returns how many instances of each kind are to be kept warm: what Pool
// says, else none by a daemon with Auto, which is to cost nothing while
// nobody needs it, and 2 by one that was started to serve.
func (c Config) PoolSize() int {
	switch {
	case c.Pool != nil:
		return *c.Pool
	case c.Auto:
		return 0
	}
	return servedPool
}

// Size is a number of bytes that JSON has as a number, or as "512m" or "1g":
// with one of k, m, g and t, for powers of 1024.
type Size int64

// UnmarshalJSON implements json.Unmarshaler.
func (s *Size) UnmarshalJSON(b []byte) error {
	digits, shift := string(b), 0
	if text, ok := strings.CutPrefix(digits, `"`); ok {
		digits = strings.TrimSuffix(text, `"`)
		if i := len(digits) - 1; i > 0 {
			if n := strings.IndexByte("kmgt", digits[i]|0x20); n >= 0 {
				digits, shift = digits[:i], 10*(n+1)
			}
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n > math.MaxInt64>>shift {
		return fmt.Errorf(`%.40s is not a size: use a number of bytes, or one with k, m, g or t, such as "512m" or "8g"`, b)
	}
	*s = Size(n << shift)
	return nil
}

// Duration is a time.Duration that JSON has as "5m".
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%.40q is not a duration: use one such as 90s, 5m or 2h", b)
	}
	*d = Duration(v)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// DefaultConfig returns what holds in a home without a config.json.
func DefaultConfig(dirs home.Dirs) Config {
	return Config{
		Dirs:      dirs,
		MountDirs: []string{"~", "/home", "/srv", "/mnt", "/media", "/opt", "/tmp", "/var/tmp"},
		IdleExit:  Duration(5 * time.Minute),
		StartTime: Duration(sandbox.DefaultStartTime), MeasureTime: Duration(meter.DefaultTime),

		E2BSudo:    true,
		PoolMemory: sandbox.DefaultPoolMemory,

		VolumeSize: volume.DefaultSize, VolumeMaxSize: volume.DefaultMaxSize, VolumesPerOwner: volume.DefaultPerOwner,
		BuildTime: Duration(template.DefaultTime), BuildCache: template.DefaultCacheSize,
	}
}

// ReadConfig returns the default configuration with what config.json says.
// It need not be there.
func ReadConfig(dirs home.Dirs) (Config, error) {
	cfg := DefaultConfig(dirs)
	path := filepath.Join(dirs.Config, configName)
	f, err := home.OpenTrusted(path)
	if errors.Is(err, fs.ErrNotExist) {
		return cfg, nil
	}
	if _, said := errors.AsType[*sandbox.Error](err); said {
		return cfg, err
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
	if err := strict.Unmarshal(b, c); err != nil {
		e := sandbox.Errorf(sandbox.Invalid, "%s: %v", path, err)
		if line, name := faultyField(b); name != "" {
			e = sandbox.Errorf(sandbox.Invalid, "%s: line %d: %s: %v", path, line, name, err)
		} else if line > 0 {
			e = sandbox.Errorf(sandbox.Invalid, "%s: line %d: %v", path, line, err)
		}
		if cause, ok := errors.AsType[*sandbox.Error](err); ok {
			e.Hint = cause.Hint
		}
		return e
	}
	return nil
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
		host, port, err := net.SplitHostPort(c.Listen)
		if err != nil {
			return sandbox.Errorf(sandbox.Invalid, "listen %.80q: not an address", c.Listen).WithHint("127.0.0.1:3000")
		}
		if _, err := net.LookupPort("tcp", port); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "listen %.80q: %.40q is no port", c.Listen, port).WithHint("from 0 to 65535: %s", net.JoinHostPort(host, "3000"))
		}
	} else if c.APIKeyFile != "" {
		return sandbox.Errorf(sandbox.Invalid, "api_key_file: it is for TCP, and no address is given").
			WithHint("name one: --listen ADDR")
	}
	if (c.TLSCert == "") != (c.TLSKey == "") || c.TLSCert != "" && c.Listen == "" {
		return sandbox.Errorf(sandbox.Invalid, "tls_cert and tls_key: they go together, and with an address to listen on").
			WithHint(`"listen": "0.0.0.0:443", "tls_cert": "/etc/carboy/cert.pem", "tls_key": "/etc/carboy/key.pem"`)
	}
	if _, err := c.ResolverAddrs(); err != nil {
		return err
	}
	if _, _, err := c.buildNetwork(); err != nil {
		return err
	}
	if err := c.checkMCPServers(); err != nil {
		return err
	}
	if c.BuildTime <= 0 {
		return bad("build_time: it must be longer than 0")
	}
	if c.BuildCache <= 0 {
		return bad("build_cache: it must be more than 0")
	}
	for name, d := range map[string]Duration{"idle_exit": c.IdleExit, "start_time": c.StartTime, "measure_time": c.MeasureTime} {
		if d <= 0 {
			return bad("%s: it must be longer than 0", name)
		}
	}
	if n := c.PoolSize(); n < 0 || n > maxPool {
		return bad("pool %d: out of bounds, which are 0 and %d", n, maxPool)
	}
	if c.PoolMemory <= 0 {
		return sandbox.Errorf(sandbox.Invalid, `pool_memory: not a size of more than 0, such as "512m", "1g" or 1073741824`).
			WithHint(`for no pool, set "pool" to 0`)
	}
	if err := c.checkVolumes(); err != nil {
		return err
	}
	if err := c.Box.check(); err != nil {
		return err
	}
	if c.Domain != "" && !validHost(c.Domain) {
		return bad("domain %.80q: not a host's name", c.Domain)
	}
	if !sandbox.ValidWall(c.E2BIsolation) && c.E2BIsolation != "" {
		return bad("e2b_isolation %.80q: there is no such wall", c.E2BIsolation)
	}
	for _, h := range c.Hosts {
		if !validHost(h) {
			return bad("hosts: %.80q is not a host's name in lower case, without a port", h)
		}
	}
	if err := c.checkLimits(); err != nil {
		return err
	}
	for _, d := range c.MountDirs {
		if d != "~" && !strings.HasPrefix(d, "~/") && (!filepath.IsAbs(d) || filepath.Clean(d) != d) || d == "/" {
			return bad(`mount_dirs: %.80q is neither an absolute path nor below "~"`, d)
		}
	}
	return nil
}

// ResolverAddrs are Resolvers as addresses with a port.
func (c Config) ResolverAddrs() ([]netip.AddrPort, error) {
	var all []netip.AddrPort
	for _, r := range c.Resolvers {
		if a, err := netip.ParseAddr(r); err == nil {
			all = append(all, netip.AddrPortFrom(a, 53))
			continue
		}
		a, err := netip.ParseAddrPort(r)
		if err != nil || a.Port() == 0 {
			return nil, sandbox.Errorf(sandbox.Invalid, "resolvers: %.80q is no address", r).
				WithHint(`"192.0.2.53", or "[2001:db8::53]:5353"`)
		}
		all = append(all, a)
	}
	return all, nil
}

// validHost reports whether s is a name or an address as a Host header has
// it, without a port.
func validHost(s string) bool {
	return s != "" && len(s) <= 253 && !slices.ContainsFunc([]byte(s), func(c byte) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.'
	})
}
