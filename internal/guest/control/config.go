package control

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"slices"
	"strings"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

// MaxConfig bounds a configuration, in bytes.
const MaxConfig = 1 << 20

// Config is what the host tells the agent.
type Config struct {
	ID   string   `json:"id"`   // the sandbox's
	Key  []byte   `json:"key"`  // what host and agent know each other by: a Key
	Hide []string `json:"hide"` // mount points that commands must not see
	User string   `json:"user"` // whom commands run as unless they say
	// Cwd is where they start; empty: their user's home.
	Cwd  string            `json:"cwd"`
	Env  map[string]string `json:"env"`
	PIDs int64             `json:"pids"` // processes and threads of all commands together; 0: no limit
	// AllowRoot lets commands run as uid 0.
	AllowRoot bool `json:"allow_root"`
	// PIDNamespace gives commands a pid namespace of their own.
	PIDNamespace bool     `json:"pid_namespace"`
	DiskPaths    []string `json:"disk_paths"` // where to look for a full disk after a command failed
	// Furnish adds what commands expect to an image that was not made for them.
	Furnish bool `json:"furnish,omitempty"`
	// Programs gives an image what it lacks of programs that agents call: python
	// where it has python3 alone, and sudo.
	Programs bool `json:"programs,omitempty"`
	// Sudo lets commands of User be another's from inside: see package sudo. It
	// counts with AllowRoot alone.
	Sudo bool `json:"sudo,omitempty"`
	// ReadOnlyRoot lets commands write nowhere but in Writable, which are
	// directories that are there, /tmp, /var/tmp, /dev/shm and the home of User.
	ReadOnlyRoot bool     `json:"read_only_root,omitempty"`
	Writable     []string `json:"writable,omitempty"`
	// Lock is what of a mount commands can't write to from the start; nil: all of it can be written to.
	Lock *api.Lock `json:"lock,omitempty"`
	// NotShown are the directories of the host's PATH that the image lacks.
	NotShown []string `json:"not_shown,omitempty"`
	// Network is the sandbox's way out; nil: it has none, and look-ups of names
	// are to fail at once.
	Network *api.Network `json:"network,omitempty"`
	// Machine is what commands are shown of their limits; nil: what the kernel shows.
	Machine *api.Machine `json:"machine,omitempty"`

	// What follows is for instances on the host's own kernel.

	Strict     bool     `json:"strict,omitempty"`      // commands get the jail that such a kernel needs
	Tasks      []string `json:"tasks,omitempty"`       // cgroup v1 files that put a thread among the commands
	OOMScore   int      `json:"oom_score,omitempty"`   // commands' oom_score_adj, 0 to 1000
	Files      uint64   `json:"files,omitempty"`       // descriptors of each process of a command; 0: as many as the agent's
	FilesShare uint64   `json:"files_share,omitempty"` // what the instance may hold of the host's open files when those run short; 0: not looked after
	Shared     []string `json:"shared,omitempty"`      // mount points that others see as well: no sockets are made there
	CgroupRoot string   `json:"cgroup_root,omitempty"` // where the instance's own cgroup v2 directory is mounted; empty: nowhere
	OOMFile    string   `json:"oom_file,omitempty"`    // commands' memory.oom_control; empty: v2 tells
	PIDsFile   string   `json:"pids_file,omitempty"`   // commands' pids.events; empty: v2 tells
	// Controllers are those of cgroup v1 in whose hierarchies the instance has groups of its
	// own: commands are shown these.
	Controllers []string `json:"controllers,omitempty"`
}

// maxOOMScore is the kernel's: first to be killed.
const maxOOMScore = 1000

// ParseConfig reads a configuration. Fields that it does not know are errors.
func ParseConfig(r io.Reader) (Config, error) {
	var c Config
	dec := json.NewDecoder(io.LimitReader(r, MaxConfig))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return Config{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Config{}, errors.New("something follows the object")
	}
	if c.User == "" {
		c.User = account.User
	}
	return c, c.validate()
}

func (c Config) validate() error {
	if len(c.Key) != KeySize {
		return fmt.Errorf("key: %d bytes instead of %d", len(c.Key), KeySize)
	}
	paths := slices.Concat(c.Hide, c.DiskPaths, c.NotShown, c.Tasks, c.Writable, c.Shared)
	for _, p := range []string{c.Cwd, c.CgroupRoot, c.OOMFile, c.PIDsFile} {
		if p != "" {
			paths = append(paths, p)
		}
	}
	for _, p := range paths {
		if err := CheckPath(p); err != nil {
			return err
		}
	}
	if c.PIDs < 0 {
		return fmt.Errorf("pids: %d is negative", c.PIDs)
	}
	if c.OOMScore < 0 || c.OOMScore > maxOOMScore {
		return fmt.Errorf("oom_score: %d is not between 0 and %d", c.OOMScore, maxOOMScore)
	}
	if c.User == account.Root && !c.AllowRoot {
		return errors.New("user: root is not allowed")
	}
	if c.Lock != nil {
		if err := CheckLock(c.Lock); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
	}
	if err := CheckNetwork(c.Network); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	if err := CheckMachine(c.Machine); err != nil {
		return fmt.Errorf("machine: %w", err)
	}
	return CheckEnv(c.Env)
}

// CheckEnv refuses what can't be an environment.
func CheckEnv(env map[string]string) error {
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return fmt.Errorf("env: %.64q can't be a variable with that value", name)
		}
	}
	return nil
}

// maxProcessors bounds the numbers of processors: no kernel that we know of has more.
const maxProcessors = 8192

// CheckPath refuses what is not a clean absolute path.
func CheckPath(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) { // a kernel reads no further than a 0
		return fmt.Errorf("%q is not a clean absolute path", p)
	}
	return nil
}

// CheckLock refuses parts that are not below their mount, or in no order.
func CheckLock(l *api.Lock) error {
	if err := CheckPath(l.Path); err != nil {
		return err
	}
	last := ""
	for _, p := range l.Parts {
		if err := CheckPath(p.Path); err != nil {
			return err
		}
		if p.Path != l.Path && !strings.HasPrefix(p.Path, l.Path+"/") || p.Path <= last {
			return fmt.Errorf("%q can't be a part of %s there", p.Path, l.Path)
		}
		last = p.Path
	}
	return nil
}

// CheckMachine refuses what can't be shown. nil is nothing.
func CheckMachine(m *api.Machine) error {
	switch {
	case m == nil:
		return nil
	case !(m.CPUs >= 0 && m.CPUs <= maxProcessors):
		return fmt.Errorf("cpus: %g is not between 0 and %d", m.CPUs, maxProcessors)
	case m.Memory < 0:
		return fmt.Errorf("memory: %d is negative", m.Memory)
	case m.PIDs < 0:
		return fmt.Errorf("pids: %d is negative", m.PIDs)
	}
	for _, n := range m.Processors {
		if n < 0 || n >= maxProcessors {
			return fmt.Errorf("processors: %d is not between 0 and %d", n, maxProcessors-1)
		}
	}
	return nil
}

const (
	maxNameservers = 3   // the C library reads no more
	maxHostname    = 253 // bytes

	// maxAuthority bounds the sandbox's certificate, in bytes of PEM.
	maxAuthority = 16 << 10
)

// CheckNetwork refuses what can't be a way out. nil is none.
func CheckNetwork(n *api.Network) error {
	if n == nil {
		return nil
	}
	if len(n.Nameservers) == 0 || len(n.Nameservers) > maxNameservers {
		return fmt.Errorf("nameservers: %d of them; from 1 to %d are possible", len(n.Nameservers), maxNameservers)
	}
	for _, s := range n.Nameservers {
		if a, err := netip.ParseAddr(s); err != nil || a.Zone() != "" || a.Is4In6() {
			return fmt.Errorf("nameservers: %.64q is no address", s)
		}
	}
	if n.Gate != "" && !hostname(n.Gate) {
		return fmt.Errorf("gate: %.64q is no host name", n.Gate)
	}
	if n.Roots != "" && (!path.IsAbs(n.Roots) || path.Clean(n.Roots) != n.Roots) {
		return fmt.Errorf("roots: %.64q is not a clean absolute path", n.Roots)
	}
	if n.Trust == "" {
		return nil
	}
	if _, err := CheckAuthority([]byte(n.Trust)); err != nil {
		return fmt.Errorf("trust: %w", err)
	}
	return nil
}

// hostname reports whether s is letters, digits and hyphens between dots.
func hostname(s string) bool {
	if len(s) > maxHostname {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-') {
				return false
			}
		}
	}
	return true
}

// CheckAuthority returns the certificate in DER. It refuses whatever is not one
// certificate of an authority, in PEM and alone.
func CheckAuthority(text []byte) (*x509.Certificate, error) {
	if len(text) > maxAuthority {
		return nil, fmt.Errorf("an authority of %d bytes is too large: at most %d", len(text), maxAuthority)
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 || !bytes.HasPrefix(text, []byte("-----BEGIN ")) {
		return nil, errors.New("an authority is one certificate in PEM, and nothing else")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	if !cert.IsCA {
		return nil, errors.New("the certificate is not an authority's")
	}
	return cert, nil
}
