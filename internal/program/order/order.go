// Package order names the programs that carboy is made of, and carries what one of them
// tells another when it executes it: in JSON, in one variable of the environment. All
// users of a machine see a program's arguments, and its standard streams belong to whoever
// called carboy. An order holds no secret, and one with an unknown field is refused.
package order

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// Variable is the order's, in an environment.
const Variable = "CARBOY_ORDER"

// Order is what a program is told.
type Order struct {
	Version  string             `json:"version"`            // of the program that people installed
	Exe      string             `json:"exe"`                // its file; "" where that is not known
	Programs map[string]Program `json:"programs,omitempty"` // the others, by their names

	Login     string    `json:"login,omitempty"` // the image whose registry credentials are looked for
	Serve     Serve     `json:"serve"`
	Uninstall Uninstall `json:"uninstall"`
}

// Serve is how a daemon is to run.
type Serve struct {
	Listen     string   `json:"listen,omitempty"`       // TCP address besides the unix socket; "": none
	APIKeyFile string   `json:"api_key_file,omitempty"` // keys that Listen accepts; "": none
	Background bool     `json:"background,omitempty"`   // started by another carboy: leave when idle
	LangBot    *LangBot `json:"langbot,omitempty"`
}

// LangBot is how LangBot is served; what is "" or nil is as configured.
type LangBot struct {
	Listen           string   `json:"listen,omitempty"` // TCP address of the dialect; "": "127.0.0.1:5410", unless Stdio
	Stdio            bool     `json:"stdio,omitempty"`  // speak over standard input and output as well, and leave with them
	HostRoot         string   `json:"host_root,omitempty"`
	MountRoots       []string `json:"mount_roots"` // nil: as configured
	Profile          string   `json:"profile,omitempty"`
	Isolation        string   `json:"isolation,omitempty"`
	ControlTokenFile string   `json:"control_token_file,omitempty"`
	TLSCert          string   `json:"tls_cert,omitempty"`
	TLSKey           string   `json:"tls_key,omitempty"`
}

// Uninstall is how much an uninstallation does.
type Uninstall struct {
	Config   bool `json:"config,omitempty"`    // remove the configuration, too
	StopOnly bool `json:"stop_only,omitempty"` // end sandboxes, and remove nothing
}

// Login is what a user's own Docker configuration has for the registry of an image.
type Login struct {
	Registry string            `json:"registry"` // "": the reference names none
	Auth     *api.RegistryAuth `json:"auth"`     // nil: it has nothing
	// Failed says in words of our own why it could not be asked, or is "": what a helper
	// printed may hold what it is to keep.
	Failed string `json:"failed"`
}

// Environ returns the order as an environment's line.
func (o Order) Environ() (string, error) {
	raw, err := json.Marshal(o)
	return Variable + "=" + string(raw), err
}

// In returns an environment with the order, and with no other.
func (o Order) In(env []string) ([]string, error) {
	line, err := o.Environ()
	other := func(kv string) bool { return strings.HasPrefix(kv, Variable+"=") }
	return append(slices.DeleteFunc(slices.Clone(env), other), line), err
}

// ErrNone says that a program was executed by nobody who knows it.
var ErrNone = errors.New("this is a part of carboy, which carboy itself executes")

// Take reads this process's order, and hides it from what it starts.
func Take() (o Order, err error) {
	raw, ok := os.LookupEnv(Variable)
	if !ok {
		return o, ErrNone
	}
	if err := os.Unsetenv(Variable); err != nil {
		return o, err
	}
	if err := strict.Unmarshal([]byte(raw), &o); err != nil {
		return o, fmt.Errorf("read the order: %w", err)
	}
	return o, nil
}
