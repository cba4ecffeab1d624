package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/shell"
	"github.com/carboy-sandbox/carboy/internal/term"
)

// specFlags are the flags that say what a sandbox is like. What is left at
// its zero takes the daemon's default.
type specFlags struct {
	name, isolation, image, snapshot, template, pull, user string

	net netFlags

	workspace string
	mounts    []string
	volumes   []string
	labels    []string
	env       envFlags

	readOnly bool

	cpus         float64
	pids         int64
	memory, disk int64
	ttl          time.Duration
}

func (f *specFlags) add(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&f.name, "name", "", "`NAME` name it; one is made up otherwise")
	fs.StringVar(&f.isolation, "isolation", "", "`WALL[,WALL...]` wall to build; more of them: the stronger ones will do as well"+isDefault(sandbox.DefaultIsolation))
	fs.StringVar(&f.image, "image", "", "`IMAGE` root file system: a reference, a path, or host, this machine's own programs"+isDefault(sandbox.DefaultImage))
	fs.StringVar(&f.template, "template", "", "`NAME` start from that template: NAME, NAME:TAG or OWNER/NAME")
	fs.StringVar(&f.snapshot, "snapshot", "", "`ID` start from the snapshot of that ID, over its image")
	fs.Var(choiceValue{&f.pull, []string{pullMissing, pullAlways, pullNever}}, "pull", "`WHEN` fetch the image if it is missing, always or never"+isDefault(pullMissing))
	fs.StringVar(&f.workspace, "workspace", "", "`DIR[:rw|:ro]` show a copy-on-write view of DIR at /workspace; :rw the tree itself")
	fs.StringArrayVar(&f.mounts, "mount", nil, "`HOST:GUEST[:ro]` show the directory HOST at GUEST, too")
	fs.StringArrayVar(&f.volumes, "volume", nil, "`NAME:PATH[:ro]` show the volume NAME at PATH; at /workspace it is the workspace")
	fs.BoolVar(&f.readOnly, "read-only", false, "let nobody inside write but to /workspace, mounts, /tmp and the home")
	fs.StringVar(&f.user, "user", "", "`USER` run commands as user or root"+isDefault(sandbox.DefaultUser))
	fs.Var(cpusValue{&f.cpus}, "cpus", "`N` how many processors it may use, such as 0.5"+isDefault(strconv.FormatFloat(sandbox.DefaultCPUs, 'g', -1, 64)))
	fs.Var(sizeValue{&f.memory}, "memory", "`SIZE` how much memory, such as 512m or 1g"+isDefault(term.FormatSize(sandbox.DefaultMemory)))
	fs.Var(countValue{&f.pids}, "pids", "`N` how many processes and threads"+isDefault(strconv.Itoa(sandbox.DefaultPIDs)))
	fs.Var(sizeValue{&f.disk}, "disk", "`SIZE` how much it may write"+isDefault(term.FormatSize(sandbox.DefaultDisk)))
	f.net.add(fs)
	f.env.add(fs)
	fs.StringArrayVar(&f.labels, "label", nil, "`KEY=VALUE` attach a label")
	fs.Var(durationValue{&f.ttl}, "ttl", "`DURATION` stop it after that long, such as 90s, 30m or 2h (default never)")
}

func isDefault(s string) string { return " (default " + s + ")" }

func (f *envFlags) add(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.vars, "env", nil, "`KEY[=VALUE]` set a variable; without VALUE, to what it is here")
	fs.StringArrayVar(&f.files, "env-file", nil, "`FILE` set the variables in FILE, one KEY=VALUE a line")
}

// request checks the flags and turns them into a request, but for the secrets:
// see obtain.
func (f *specFlags) request(a *app) (*api.CreateRequest, error) {
	if f.name != "" && !sandbox.ValidName(f.name) {
		return nil, usage.Errorf("--name: %q is not a name", f.name).
			WithHint("use 1 to %d of a-z, 0-9 and -, a letter first", sandbox.MaxName)
	}
	if err := checkPull(f.image, f.pull); err != nil {
		return nil, err
	}
	walls, err := parseIsolation(f.isolation)
	if err != nil {
		return nil, err
	}
	req := &api.CreateRequest{
		Name:      f.name,
		Isolation: walls[0],
		Stronger:  walls[1:],
		Image:     f.image,
		Snapshot:  f.snapshot,
		Template:  f.template,
		User:      f.user,
		Limits:    api.Limits{CPUs: f.cpus, Memory: f.memory, PIDs: f.pids, Disk: f.disk},
		TTLMillis: f.ttl.Milliseconds(),
	}
	if req.Env, err = f.env.collect(a.LookupEnv); err != nil {
		return nil, err
	}
	if req.Labels, err = parseLabels(f.labels); err != nil {
		return nil, err
	}
	if err := f.net.request(req, a.Note); err != nil {
		return nil, err
	}
	if f.workspace != "" {
		if req.Workspace, err = workspaceOf(f.workspace); err != nil {
			return nil, err
		}
	}
	req.ReadOnlyRoot = f.readOnly
	if req.Mounts, err = f.mounted(); err != nil {
		return nil, err
	}
	return req, f.volumeAsWorkspace(req)
}

// volumeAsWorkspace takes the volume that is to be at /workspace from the
// mounts.
func (f *specFlags) volumeAsWorkspace(req *api.CreateRequest) error {
	i := slices.IndexFunc(req.Mounts, func(m api.Mount) bool { return m.Volume != "" && m.Target == sandbox.WorkspacePath })
	if i < 0 {
		return nil
	}
	m := req.Mounts[i]
	if req.Workspace != nil {
		return usage.Errorf("--volume: %s is to be the workspace, and --workspace names another", shell.Word(m.Volume)).
			WithHint("leave one of them out")
	}
	req.Workspace = &api.Workspace{Mode: string(sandbox.WorkspaceVolume), Volume: m.Volume, ReadOnly: m.ReadOnly}
	req.Mounts = slices.Delete(req.Mounts, i, i+1)
	return nil
}

// mounted is what is to be seen besides the workspace.
func (f *specFlags) mounted() ([]api.Mount, error) {
	var mounts []api.Mount
	for _, m := range f.mounts {
		arg, err := parseMount(m)
		if err != nil {
			return nil, usage.Errorf("--mount: %v", err)
		}
		host, err := hostDir("--mount", arg.Host)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, api.Mount{Source: host, Target: arg.Guest, ReadOnly: arg.ReadOnly})
	}
	for _, v := range f.volumes {
		arg, err := parseVolume(v)
		if err != nil {
			return nil, usage.Errorf("--volume: %v", err)
		}
		mounts = append(mounts, arg)
	}
	return mounts, nil
}

// parseIsolation reads walls, the one asked for first. None is the default.
func parseIsolation(s string) ([]string, error) {
	walls := strings.Split(s, ",")
	for i, w := range walls {
		switch {
		case w == "" && len(walls) > 1:
			return nil, usage.Errorf("--isolation: %s names an empty wall", shell.Word(s)).WithHint("--isolation process,gvisor")
		case slices.Contains(walls[:i], w):
			return nil, usage.Errorf("--isolation: %s is there twice", shell.Word(w))
		}
	}
	return walls, nil
}

func workspaceOf(s string) (*api.Workspace, error) {
	arg, err := parseWorkspace(s)
	if err != nil {
		return nil, usage.Errorf("--workspace: %v", err)
	}
	dir, err := hostDir("--workspace", arg.Dir)
	if err != nil {
		return nil, err
	}
	return &api.Workspace{Mode: arg.Mode, Source: dir}, nil
}

func parseLabels(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	labels := make(map[string]string, len(list))
	for _, l := range list {
		k, v, err := parseLabel(l)
		if err != nil {
			return nil, usage.Errorf("--label: %v", err)
		}
		if _, ok := labels[k]; ok {
			return nil, usage.Errorf("--label: %s was given twice", shell.Word(k))
		}
		labels[k] = v
	}
	return labels, nil
}

// cpusValue is a flag that holds a positive number of processors.
type cpusValue struct{ n *float64 }

func (v cpusValue) String() string { return "" }
func (v cpusValue) Type() string   { return "number" }
func (v cpusValue) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || n > 1<<16 || !(n > 0) { // NaN is not more than zero either
		return fmt.Errorf("%q is not a number of processors: use one such as 2 or 0.5", s)
	}
	*v.n = n
	return nil
}

// countValue is a flag that holds a positive whole number.
type countValue struct{ n *int64 }

func (v countValue) String() string { return "" }
func (v countValue) Type() string   { return "number" }
func (v countValue) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return fmt.Errorf("%q is not a whole number above zero", s)
	}
	*v.n = n
	return nil
}

// durationValue is a flag that holds a positive duration of whole milliseconds.
type durationValue struct{ d *time.Duration }

func (v durationValue) String() string { return "" }
func (v durationValue) Type() string   { return "duration" }
func (v durationValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	switch {
	case s != "" && strings.Trim(s, "0123456789") == "":
		return fmt.Errorf("%q has no unit: use %ss, %sm or %sh", s, s, s, s)
	case err != nil:
		return fmt.Errorf("%q is not a duration: use one such as 90s, 30m or 2h", s)
	case d < time.Millisecond:
		return fmt.Errorf("%q is too short: the least is 1ms", s)
	}
	*v.d = d
	return nil
}

// sizeValue is a flag that holds a size in bytes.
type sizeValue struct{ n *int64 }

func (v sizeValue) String() string {
	if v.n == nil || *v.n == 0 {
		return ""
	}
	return term.FormatSize(*v.n)
}
func (v sizeValue) Type() string { return "size" }
func (v sizeValue) Set(s string) (err error) {
	n, err := term.ParseSize(s)
	if err == nil {
		*v.n = n
	}
	return err
}

// addJSON adds --json.
func (a *app) addJSON(fs *pflag.FlagSet) {
	fs.BoolVar(&a.JSON, "json", false, "write JSON, also of errors and notes")
}
