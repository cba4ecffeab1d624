package mcpgateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/mcpgateway/catalogue"
)

// Where things are in a sandbox. The token's file is E2B's.
const (
	cataloguePath = "/etc/mcp-gateway/catalogue.json"
	tokenPath     = "/etc/mcp-gateway/.token"
	logPath       = "/var/log/mcp-gateway.log"
	tokenVariable = "GATEWAY_ACCESS_TOKEN"
	account       = "user" // whom servers run as, where the gateway is root

	exitFailed = 1
	exitUsage  = 2

	statusFile = 3 // of the gateway that stays

	maxLog      = 8 << 20
	headTimeout = 10 * time.Second
	endGrace    = 2 * time.Second
)

// order is what the command hands to the gateway that stays.
type order struct {
	Servers []catalogue.Server `json:"servers"`
	Token   string             `json:"token"`
	Listen  string             `json:"listen"`
}

// Main is the program. `mcp-gateway --config JSON` starts a gateway that goes
// on in the background, and returns once it answers; `mcp-gateway pull NAME…`
// installs servers of the catalogue. It returns the exit code.
func Main(ctx context.Context, args []string, stderr io.Writer) int {
	err := run(ctx, args, stderr)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(stderr, "mcp-gateway:", err)
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func run(ctx context.Context, args []string, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "serve":
			return serve(ctx, os.Stdin)
		case "pull":
			return pull(ctx, args[1:])
		}
	}
	fs := flag.NewFlagSet("mcp-gateway", flag.ContinueOnError)
	fs.SetOutput(stderr)
	config := fs.String("config", "", "the servers, as `JSON`")
	listen := fs.String("listen", ":"+strconv.Itoa(port), "serve on `address`")
	if err := fs.Parse(args); err != nil {
		return &usageError{err.Error()}
	}
	if fs.NArg() > 0 || *config == "" {
		return &usageError{"usage: mcp-gateway --config JSON, or mcp-gateway pull NAME"}
	}
	c, err := configured()
	if err != nil {
		return err
	}
	servers, err := catalogue.ParseConfig([]byte(*config), c)
	if err != nil {
		return err
	}
	token := os.Getenv(tokenVariable)
	if token == "" {
		return errors.New(tokenVariable + ": it is empty; it is what clients show to be let in")
	}
	return background(ctx, order{Servers: servers, Token: token, Listen: *listen})
}

func configured() (catalogue.Catalogue, error) {
	data, err := os.ReadFile(cataloguePath)
	if errors.Is(err, os.ErrNotExist) {
		return catalogue.Catalogue{}, nil
	}
	if err != nil {
		return catalogue.Catalogue{}, err
	}
	return catalogue.Parse(data)
}

// background starts the gateway that stays, and waits until it answers or has
// failed. What it is told goes over a pipe: arguments are there for all to see.
func background(ctx context.Context, o order) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	log, err := openLog()
	if err != nil {
		return err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", "serve")
	cmd.Args[0] = "mcp-gateway"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(data), log, log
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	said, err := io.ReadAll(r)
	switch {
	case err != nil:
		return err
	case string(said) == "ok":
		return cmd.Process.Release()
	case len(said) == 0:
		return errors.New("the gateway ended before it answered: see " + log.Name())
	}
	return errors.New(string(said))
}

func openLog() (*os.File, error) {
	path := logPath
	if os.Geteuid() != 0 {
		path = filepath.Join(os.TempDir(), "mcp-gateway.log")
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
}

// serve is the gateway that stays. File 3 is told "ok", or what went wrong.
func serve(ctx context.Context, in io.Reader) error {
	syscall.CloseOnExec(statusFile) // servers are not to hold it open
	status := os.NewFile(statusFile, "status")
	var o order
	err := json.NewDecoder(in).Decode(&o)
	if err == nil {
		err = stay(ctx, o, func() {
			_, _ = io.WriteString(status, "ok")
			status.Close()
		})
	}
	if err != nil {
		_, _ = io.WriteString(status, err.Error())
	}
	return err
}

// stay runs the gateway until ctx ends.
func stay(ctx context.Context, o order, ready func()) error {
	home, cred, env, err := surroundings()
	if err != nil {
		return err
	}
	g, err := New(Options{Servers: o.Servers, Token: o.Token, Home: home, Env: env, Credential: cred, Log: &logFile{f: os.Stderr, most: maxLog}})
	if err != nil {
		return err
	}
	defer g.Close()
	ln, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("%w (is a gateway running already?)", err)
	}
	defer ln.Close()
	if err := g.Start(ctx); err != nil {
		return err
	}
	if err := keepToken(o.Token); err != nil {
		return err
	}
	srv := &http.Server{Handler: g.Handler(), ReadHeaderTimeout: headTimeout}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	ready()
	select {
	case err = <-served:
	case <-ctx.Done():
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endGrace)
		defer cancel()
		_ = srv.Shutdown(end)
	}
	srv.Close()
	return err
}

// surroundings are what servers get: not root's home, not the token, and not
// root, where there is someone else to be.
func surroundings() (home string, cred *syscall.Credential, env []string, err error) {
	home = os.Getenv("HOME")
	if os.Geteuid() == 0 {
		if u, err := user.Lookup(account); err == nil {
			uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
			gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
			if err := errors.Join(uerr, gerr); err != nil {
				return "", nil, nil, fmt.Errorf("account %s: %w", account, err)
			}
			home, cred = u.HomeDir, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	if home == "" {
		home = "/"
	}
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case tokenVariable, "HOME", "USER", "LOGNAME", "PWD", "OLDPWD", "SHLVL", "_":
		default:
			env = append(env, kv)
		}
	}
	return home, cred, append(env, "HOME="+home), nil
}

// keepToken writes the token where E2B's clients read it. Only root can, and
// without root they can't either. It ends with the instance: no disk is waited for.
func keepToken(token string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(tokenPath), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(tokenPath), ".new-") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone once it was renamed
	_, err = f.WriteString(token)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), tokenPath)
}

// pull installs servers of the catalogue, for a template that is being built.
func pull(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return &usageError{"usage: mcp-gateway pull NAME"}
	}
	c, err := configured()
	if err != nil {
		return err
	}
	home, cred, env, err := surroundings()
	if err != nil {
		return err
	}
	g := &Gateway{o: Options{Home: home, Env: env, Credential: cred}}
	for _, name := range names {
		e, ok := c.Servers[name]
		if !ok {
			return fmt.Errorf("server %.100q: %w", name, c.Unknown())
		}
		b := &backend{Server: catalogue.Server{Name: name, Install: e.Install}, g: g}
		if err := b.install(ctx); err != nil {
			return fmt.Errorf("server %s: %w", name, err)
		}
	}
	return nil
}
