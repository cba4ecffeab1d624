package daemon

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
)

// maxToken is the size of the largest file of a control token.
const maxToken = 4096

// Box is the section of config.json about sessions, and the dialect of LangBot's
// Box.
type Box struct {
	session.Config

	Enabled *bool `json:"enabled"` // nil: true; false: there are no sessions
	// Listen is the TCP address of the dialect; "": it is not served. Without a
	// token it has to be of this machine alone.
	Listen string `json:"listen"`
	// ControlTokenFile has the secret that hosts say; nobody else may read it.
	ControlTokenFile string `json:"control_token_file"`
	// Instance is the only one of LangBot's that may connect; "": the first.
	Instance string `json:"instance"`
	// TLSCert and TLSKey are files in PEM: with them the address speaks TLS alone,
	// and hosts connect to wss://. They are read again when they have changed. One
	// of loopback beside Pipes stays in clear, unless Pipes ask for TLS.
	TLSCert string `json:"tls_cert"`
	TLSKey  string `json:"tls_key"`

	Profile  string         `json:"profile"`  // of requests that name none; "": "default"
	Profiles profile.Custom `json:"profiles"` // beside the built-in ones
	// SkillsRoot is where skills are kept; relative to host_root, "": "skills" in
	// it, or in the home where there is no host_root.
	SkillsRoot string `json:"skills_root"`
	// Admission is the policy by which workspaces are admitted; see package langbot. What
	// can't be read admits nobody.
	Admission json.RawMessage `json:"admission"`

	// What follows is of carboy langbot serve alone.

	Token string   `json:"-"` // that LangBot gave by the environment
	Host  []byte   `json:"-"` // a host's configuration, likewise
	Pipes *BoxPipe `json:"-"`
}

// BoxPipe is a host that speaks over a pair of pipes, and with which the daemon
// leaves.
type BoxPipe struct {
	In    io.Reader
	Out   io.Writer
	Close func() error
	// TLS has the address speak TLS too where it is of loopback: the host, which
	// looks for the relay there, would do so at ws://.
	TLS bool
}

// secure reports whether the address speaks TLS.
func (b Box) secure() bool {
	return b.Listen != "" && b.TLSCert != "" && (b.Pipes == nil || b.Pipes.TLS || !langbot.IsLocal(b.Listen))
}

func (b Box) enabled() bool { return b.Enabled == nil || *b.Enabled }

// serves reports whether the dialect is served at all.
func (b Box) serves() bool { return b.Listen != "" || b.Pipes != nil }

// check reports the first thing that can't be.
func (b Box) check() error {
	if err := b.Validate(); err != nil {
		return err
	}
	if _, err := profile.Find(b.Profile, b.Profiles); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "box.profile: %v", err)
	}
	switch {
	case !b.enabled() && b.serves():
		return sandbox.Errorf(sandbox.Invalid, "box.enabled is false, and box.listen asks for sessions").WithHint("leave one of them out")
	case (b.TLSCert == "") != (b.TLSKey == ""):
		return sandbox.Errorf(sandbox.Invalid, "box.tls_cert and box.tls_key: they go together").
			WithHint(`"tls_cert": "/etc/carboy/cert.pem", "tls_key": "/etc/carboy/key.pem"; or --tls-cert and --tls-key`)
	case b.Listen == "":
		return nil
	}
	return langbot.CheckListen(b.Listen, b.ControlTokenFile != "" || b.Token != "")
}

// token reads the control token; "": none is asked for.
func (b Box) token() (string, error) {
	if b.ControlTokenFile == "" {
		return b.Token, nil
	}
	text, _, err := readPEM(b.ControlTokenFile, true)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(token) > maxToken {
		return "", sandbox.Errorf(sandbox.Invalid, "%s: over %d bytes, and no control token", b.ControlTokenFile, maxToken)
	}
	return token, langbot.CheckToken(token)
}

// skillsRoot is where skills are kept.
func (b Box) skillsRoot(state string) string {
	root := b.SkillsRoot
	if root == "" {
		root = "skills"
	}
	if filepath.IsAbs(root) {
		return root
	}
	if b.HostRoot != "" {
		return filepath.Join(b.HostRoot, root)
	}
	return filepath.Join(state, "box", root)
}

// makeDirs makes the directories of the host that are named and written to. Who
// could lead another way to one would have the daemon write there.
func (b Box) makeDirs() error {
	for _, d := range []struct{ setting, path string }{
		{"box.host_root", b.HostRoot},
		{"box.skills_root", b.skillsRoot("")},
	} {
		if !filepath.IsAbs(d.path) {
			continue // none is named, or it is below the state
		}
		err := home.Make(d.path, 0o755)
		if cause, ok := errors.AsType[*sandbox.Error](err); ok {
			return sandbox.Errorf(cause.Kind, "%s: %s", d.setting, cause.Msg).WithHint("%s", cause.Hint)
		}
		if err != nil {
			return sandbox.Errorf(sandbox.Invalid, "%s: %w", d.setting, err).WithHint("name a directory that can be written")
		}
	}
	return nil
}

// ApplyBoxEnvironment takes what LangBot says to a runtime that it starts by
// the environment, where it was not said otherwise.
func (c *Config) ApplyBoxEnvironment(getenv func(string) string) error {
	if token := strings.TrimSpace(getenv(api.EnvControlToken)); token != "" && c.Box.ControlTokenFile == "" {
		if err := langbot.CheckToken(token); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "%s: %v", api.EnvControlToken, err)
		}
		c.Box.Token = token
	}
	if instance := strings.TrimSpace(getenv(api.EnvInstance)); instance != "" {
		if c.Box.Instance != "" && c.Box.Instance != instance {
			return sandbox.Errorf(sandbox.Invalid, "%s says %.128q, and box.instance %q", api.EnvInstance, instance, c.Box.Instance)
		}
		c.Box.Instance = instance
	}
	if config := getenv(api.EnvConfig); config != "" {
		if !json.Valid([]byte(config)) {
			return sandbox.Errorf(sandbox.Invalid, "%s: it is no JSON", api.EnvConfig).WithHint("unset it, or write an object as LangBot's box section is")
		}
		c.Box.Host = []byte(config)
	}
	// They are secrets, or of no use to what is started from here.
	for _, name := range []string{api.EnvControlToken, api.EnvConfig} {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	return nil
}

// boxHosts are the names by which the dialect's clients may call this machine
// where nothing but its name keeps pages of browsers out.
func (c Config) boxHosts() []string {
	hosts := slices.Clone(c.Hosts)
	if host, _, err := net.SplitHostPort(c.Box.Listen); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	return hosts
}

// programs are where the machine's own image has what its PATH finds.
var programs = []string{"/usr/local/bin", "/usr/bin", "/bin"}

// warnOfPython tells an operator beforehand what LangBot's tools would fail by:
// where file systems are separate they run "python", by which name a sandbox
// knows the python3 of its image, too.
func warnOfPython(log *slog.Logger, image string, shared bool, dirs []string) {
	has := func(name string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool {
			st, err := os.Stat(filepath.Join(dir, name))
			return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
		})
	}
	if image != sandbox.DefaultImage || shared || has("python") || has("python3") {
		return
	}
	log.Warn("LangBot's file tools run python in the sandbox, and this machine's own image has none: name an image that has it in box.image", "image", image)
}
