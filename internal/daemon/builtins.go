package daemon

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/mcpgateway/catalogue"
	"github.com/carboy-sandbox/carboy/internal/guest/servicebin"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/template"
)

// The templates that are there without anyone having built them: those that
// E2B's clients ask for by name.
const (
	codeInterpreter = "code-interpreter-v1"
	mcpGateway      = "mcp-gateway"

	builtinOwner = "carboy" // of what they are made with: nobody who could ask

	serviceName = "carboy-service"
	// A directory of our own may be written to on every wall, by everybody's
	// daemon.
	interpreter   = "/usr/carboy/carboy-code-interpreter"
	exitMissing   = 78 // of the interpreter: the image lacks what it needs
	startupWithin = time.Minute

	// drawn makes matplotlib's list of fonts, which its first use would make.
	drawn = `python3 -c 'import matplotlib.font_manager' >/dev/null 2>&1 || true`
)

// builtin is one of them, made at its first use.
type builtin struct {
	d    *daemon
	plan func() (files map[string]archiveMember, steps []template.Step, startup *sandbox.Startup, err error)

	mu    sync.Mutex
	build template.Build // zero before
}

// archiveMember is one file of an archive: contents with a mode, or a link.
type archiveMember struct {
	data []byte
	mode int64
	link string
}

// addBuiltins has the names stand for them.
func (d *daemon) addBuiltins(t *template.Service) {
	for name, b := range map[string]*builtin{
		codeInterpreter: {d: d, plan: interpreterPlan},
		mcpGateway:      {d: d, plan: d.gatewayPlan},
	} {
		t.Builtin(name, b.prepare)
	}
}

func interpreterPlan() (map[string]archiveMember, []template.Step, *sandbox.Startup, error) {
	files, err := services(interpreter)
	return files, []template.Step{{Type: "RUN", Args: []string{drawn}}}, &sandbox.Startup{
		// It is started again when it is killed, but not where it can't run.
		Command: fmt.Sprintf("until %s; do [ $? = %d ] && exit %d; sleep 0.2; done", interpreter, exitMissing, exitMissing),
		Ready:   interpreter + " --wait 10s",
		Timeout: startupWithin,
	}, err
}

func (d *daemon) gatewayPlan() (map[string]archiveMember, []template.Step, *sandbox.Startup, error) {
	files, err := services("/usr/local/bin/mcp-gateway")
	if err != nil {
		return nil, nil, nil, err
	}
	list := d.cfg.MCPServers
	if len(list) == 0 {
		list = json.RawMessage(`{}`)
	}
	data, err := json.Marshal(map[string]json.RawMessage{"servers": list})
	files["etc/mcp-gateway/catalogue.json"] = archiveMember{data: data, mode: 0o644}
	return files, nil, nil, err
}

// checkMCPServers refuses a catalogue that the gateway would not read.
func (c Config) checkMCPServers() error {
	if len(c.MCPServers) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]json.RawMessage{"servers": c.MCPServers})
	if err == nil {
		_, err = catalogue.Parse(data)
	}
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "mcp_servers: %w", err).WithHint("see docs/mcp-in-sandbox.md")
	}
	return nil
}

// services has the program, by the path that says what it does.
func services(at string) (map[string]archiveMember, error) {
	program, err := servicebin.Binary()
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "%s: %w", path.Base(at), err)
	}
	rel := at[1:]
	return map[string]archiveMember{
		path.Join(path.Dir(rel), serviceName): {data: program, mode: 0o755},
		rel:                                   {link: serviceName},
	}, nil
}

// prepare returns what a sandbox starts from. The first time, and when what
// was made is gone, that is made: in a sandbox, as every build is.
func (b *builtin) prepare(ctx context.Context) (template.Build, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.build.Snapshot; s != "" {
		if _, err := b.d.manager.GetSnapshot(ctx, sandbox.Caller{Owner: builtinOwner, Admin: true}, s); err == nil {
			return b.build, nil
		}
	}
	files, steps, startup, err := b.plan()
	if err != nil {
		return template.Build{}, err
	}
	copies, err := b.copies(ctx, files)
	if err != nil {
		return template.Build{}, err
	}
	build, err := b.d.templates.Make(ctx, builtinOwner, template.Plan{Steps: append(copies, steps...), HostImage: true})
	if err != nil {
		return template.Build{}, err
	}
	build.Startup = startup
	b.build = build
	return build, nil
}

// copies keeps an archive of files, and returns the steps that put them where
// they belong.
func (b *builtin) copies(ctx context.Context, files map[string]archiveMember) (steps []template.Step, err error) {
	dirs := map[string]bool{}
	for name := range files {
		dirs[path.Dir(name)] = true
	}
	archive, err := archived(files)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(archive)
	hash := hex.EncodeToString(sum[:])
	if err := b.d.templates.AddFile(ctx, builtinOwner, hash, bytes.NewReader(archive)); err != nil {
		return nil, err
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		steps = append(steps, template.Step{Type: "COPY", Args: []string{dir, "/" + dir + "/", "root"}, FilesHash: hash})
	}
	return steps, nil
}

// archived makes a tar, the same of the same files.
func archived(files map[string]archiveMember) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		h := &tar.Header{Name: name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0)}
		if f.link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
