package arch

import (
	"fmt"
	"slices"
	"testing"
)

// layers order our packages from the wire types up to the programs. Imports
// go down only: to a lower layer, or within one line's own tree. A package
// belongs to the longest line that leads to it; one that no line leads to has
// yet to be given its place.
var layers = [][]string{
	{"api", "internal/text/strict", "internal/weak", "internal/text/yamlscan", "internal/text/shell", "internal/text/near", "internal/mountinfo", "internal/landlock", "internal/rights", "test/patience", "test/named"},
	{"internal/text/tree"},     // what yamlscan lets through
	{"internal/program/order"}, // what one program of ours tells another
	{"internal/beneath"},       // names in directories, and nothing of what is there
	{"internal/durable"},       // records in them
	{"internal/text/term", "internal/text/excerpt", "internal/ignore", "internal/backend/seccomp", "internal/backend/procid", "internal/tenant/key", "internal/guest/guestbin", "internal/guest/servicebin", "internal/backend/subid", "internal/policy", "internal/egress/netlog", "internal/template/dockerfile", "internal/langbot/rpc", "internal/agent/stall", "internal/disk/ext4", "internal/approval", "internal/gitremote"}, // know nothing of sandboxes
	{"internal/policy/learn"},     // what a record asks of a policy
	{"internal/scope"},            // what may be delegated
	{"internal/pod/record"},       // and was
	{"internal/sandbox"},          // the domain
	{"internal/cache"},            // what builds keep
	{"internal/session/fault"},    // what can go wrong with a session
	{"internal/session/request"},  // what one is asked for by
	{"internal/session/record"},   // what is remembered of it
	{"internal/session/toolspec"}, // what a model is told of it
	{"internal/session/hostroot"}, // directories of the host that it may have
	{"internal/langbot/profile"},  // how LangBot's clients ask for it
	{"internal/guest", "internal/agent", "internal/guest/interpreter", "internal/guest/mcpgateway"}, // what runs inside
	{"internal/backend/disk", "internal/disk"},                                                      // where it is kept
	{"internal/disk/scrub"}, // and how it loses what is removed
	{"internal/role"},       // this binary, executed again
	{"internal/backend/cgroup", "internal/tenant/team", "internal/home", "internal/backend/hostimage", "internal/image", "internal/snapshot", "internal/egress/secret", "internal/workspace", "internal/template", "internal/loopback"}, // what walls are made of
	{"internal/volume/tree"}, // what walls and volumes both know
	{"internal/volume", "internal/backend", "internal/egress", "internal/quarantine", "internal/doctor", "internal/store", "internal/uninstall", "internal/program", "internal/server/wire", "internal/server/hostdir", "internal/policy/netspec", "internal/tenant/meter", "internal/node", "internal/template/startup", "internal/publish", "internal/hybrid", "internal/approval/desk", "internal/approval/webhook"},
	{"client/pod"},   // how pods are spoken to
	{"internal/mcp"}, // tools for models
	{"internal/pod"}, // agents that agents have spawned
	{"internal/repository", "internal/gitgate"},             // what git says of a directory, and what passes to upstreams
	{"internal/provider"},                                   // agents, and how they are set up
	{"internal/bottle"},                                     // which is done
	{"internal/launch"},                                     // what a user says of a sandbox
	{"internal/project"},                                    // and what a project does
	{"internal/process", "internal/skill"},                  // what sessions look after
	{"internal/session"},                                    // sandboxes by a key
	{"internal/server/auth"},                                // who asks
	{"internal/server", "internal/e2b", "internal/langbot"}, // the daemon's doors, side by side
	{"internal/server/servertest"},
	{"client"},
	{"internal/manifest"}, // and the bottles that they run in
	{"contrib"},
	{"internal/cli", "internal/daemon", "internal/bench"},
	{"cmd"},
	{"test"},
}

// wall, storage and network are what most packages must not even reach.
var (
	wall    = []string{"gvisor.dev/gvisor", "github.com/opencontainers/runtime-spec"}
	storage = []string{"database/sql", "modernc.org/sqlite", own("internal/store")}
	network = []string{"net/http", "connectrpc.com/connect", "google.golang.org/protobuf"}
)

// forbidden is what must not be reached, over however many imports.
var forbidden = []struct {
	from string // a package and those below it
	to   [][]string
	why  string
}{
	{
		from: "api",
		to:   [][]string{wall, storage, {own("internal"), own("client")}},
		why:  "wire types have no logic and drag nothing into whoever speaks to us",
	},
	{
		from: "client",
		to:   [][]string{wall, storage, {own("internal/server"), own("internal/backend/instance"), own("internal/backend/gvisor"), own("internal/backend/process"), own("internal/daemon")}, {own("internal/session"), own("internal/langbot"), own("contrib")}},
		why:  "a program that asks for a sandbox builds none",
	},
	{
		from: "internal/cli",
		to:   [][]string{wall, storage, {own("internal/server"), own("internal/backend/instance"), own("internal/backend/gvisor"), own("internal/backend/process"), own("internal/daemon")}},
		why:  "the command line has no private door: all that it does, the client can",
	},
	{
		from: "internal/scope",
		to:   [][]string{wall, storage, network, {"os/exec", own("internal/sandbox"), own("internal/beneath")}},
		why:  "what may be delegated is decided from rules alone",
	},
	{
		from: "internal/pod",
		to:   [][]string{wall, storage, {own("internal/server"), own("internal/backend/instance"), own("internal/backend/gvisor"), own("internal/backend/process"), own("internal/cli"), own("internal/daemon"), own("internal/session")}},
		why:  "what pods run in, and where their records are kept, the daemon hands it",
	},
	{
		from: "internal/sandbox",
		to:   [][]string{wall, storage, network, {"os/exec"}},
		why:  "the domain knows no wall, no database and no protocol",
	},
	{
		from: "internal/langbot/profile",
		to:   [][]string{wall, storage, network, {"os/exec"}},
		why:  "a client in another's program reads requests by the same rules",
	},
	{
		from: "internal/session/toolspec",
		to:   [][]string{wall, storage, network, {"os/exec"}},
		why:  "a client in another's program tells its model the same",
	},
	{
		from: "contrib/boxservice/service",
		to:   [][]string{wall, storage, network, {"os/exec", own("internal/server"), own("internal/agent")}},
		why:  "the policy of a platform's sessions stands in the platform's program",
	},
	{
		from: "internal/workspace",
		to:   [][]string{wall, storage, network, {"os/exec"}},
		why:  "diff and apply run with the user's rights and need nothing but files",
	},
	{
		from: "internal/server",
		to:   [][]string{wall, storage, {own("internal/backend/instance"), own("internal/backend/gvisor"), own("internal/backend/process"), own("internal/cli"), own("internal/daemon")}},
		why:  "the server speaks to the domain; the daemon hands it walls and stores",
	},
	{
		from: "internal/langbot/rpc",
		to:   [][]string{wall, storage, {own("internal"), own("client")}},
		why:  "both ends of a connection frame their messages by it, and one of them is a client",
	},
	{
		from: "internal/langbot",
		to:   [][]string{wall, storage, {own("internal/server"), own("internal/backend/instance"), own("internal/backend/gvisor"), own("internal/backend/process"), own("internal/daemon"), own("client")}},
		why:  "a dialect speaks to the domain; the daemon hands it sessions and skills",
	},
	{
		from: "internal/store",
		to:   [][]string{wall, network, {own("internal/server"), own("internal/backend/instance"), own("internal/backend/gvisor"), own("internal/backend/process")}},
		why:  "a store keeps records",
	},
	{
		from: "internal/backend",
		to:   [][]string{storage, {own("client"), own("internal/server"), own("internal/cli"), own("internal/daemon")}},
		why:  "a wall knows boxes, not who asked for them",
	},
	{
		from: "internal/gitgate",
		to:   [][]string{wall, storage, {own("internal/server"), own("internal/cli"), own("internal/daemon"), own("internal/repository"), own("client")}},
		why:  "it is a process of its own, which holds keys and outlives the daemon",
	},
	{
		from: "internal/gitgate/scan",
		to:   [][]string{wall, storage, network, {"os/exec", own("internal/sandbox"), own("internal/quarantine")}},
		why:  "what is searched for secrets goes nowhere",
	},
	{
		from: "internal/egress",
		to:   [][]string{{own("internal/gitgate")}},
		why:  "the gate of a sandbox's network searches no repository, and is to stay small",
	},
	{
		from: "internal/volume",
		to:   [][]string{wall, storage, {own("internal/server"), own("internal/backend/instance"), own("internal/backend/gvisor"), own("internal/backend/process"), own("internal/daemon")}},
		why:  "a volume is a disk; who shows it to a sandbox is a wall's business",
	},
	{
		from: "internal/guest",
		to:   [][]string{wall, storage, {own("client"), own("internal/sandbox"), own("internal/server"), own("internal/backend/instance"), own("internal/backend/gvisor"), own("internal/backend/process")}},
		why:  "what runs inside is small, and knows nothing of the host",
	},
	{
		from: "cmd/carboy-service",
		to:   [][]string{wall, storage, {own("client"), own("internal/sandbox"), own("internal/server"), own("internal/backend/instance"), own("internal/backend/gvisor"), own("internal/backend/process")}},
		why:  "what runs inside is small, and knows nothing of the host",
	},
	{
		from: "cmd/carboy-guest",
		to:   [][]string{wall, storage, {"github.com/spf13", "os/exec", own("internal/gitgate")}},
		why:  "the agent is in every sandbox, and starts commands without a shell or a search",
	},
}

func own(name string) string { return module + "/" + name }

func TestImportsGoDown(t *testing.T) {
	for _, problem := range importsUp(packages(t)) {
		t.Error(problem)
	}
}

func TestForbiddenImports(t *testing.T) {
	ps := packages(t)
	for _, rule := range forbidden {
		if !slices.ContainsFunc(ps, func(p pkg) bool { return within(p.name(), rule.from) }) {
			t.Errorf("%s: a rule for what is not there", rule.from)
		}
	}
	for _, problem := range reaches(ps) {
		t.Error(problem)
	}
}

// dialects are the packages, with those below them, that nobody imports but
// those who speak them.
var dialects = map[string][]string{
	"api/langbot":      {"internal/langbot", "internal/daemon", "contrib"},
	"internal/langbot": {"internal/langbot", "internal/daemon", "internal/server/access", "contrib"},
}

func TestDialectsStayOut(t *testing.T) {
	for _, problem := range spoken(packages(t)) {
		t.Error(problem)
	}
	for _, dialect := range []string{"api/langbot", "internal/langbot", "internal/langbot/profile"} {
		stray := pkg{ImportPath: own("internal/session/record"), Imports: []string{own(dialect)}}
		if got := spoken([]pkg{stray}); len(got) != 1 {
			t.Errorf("a package of sessions that imports %s: %q, want one problem", dialect, got)
		}
	}
}

// spoken lists the imports of a dialect by others.
func spoken(ps []pkg) (problems []string) {
	for _, p := range ps {
		for dialect, speakers := range dialects {
			speaks := slices.ContainsFunc(speakers, func(s string) bool { return within(p.name(), s) })
			for _, imp := range p.Imports {
				if !speaks && within(imp, own(dialect)) {
					problems = append(problems, fmt.Sprintf("%s imports %s, which is a dialect's alone", p.name(), pkg{ImportPath: imp}.name()))
				}
			}
		}
	}
	return problems
}

// place returns the layer of a package, and the line that led to it; -1 for
// none.
func place(name string) (layer int, line string) {
	layer = -1
	for i, lines := range layers {
		for _, l := range lines {
			if within(name, l) && len(l) > len(line) {
				layer, line = i, l
			}
		}
	}
	return layer, line
}

// importsUp lists the imports that do not go down.
func importsUp(ps []pkg) (problems []string) {
	for _, p := range ps {
		layer, line := place(p.name())
		if layer < 0 {
			problems = append(problems, p.name()+": has no place among the layers: give it one")
			continue
		}
		for _, imp := range p.Imports {
			if !within(imp, module) {
				continue
			}
			name := pkg{ImportPath: imp}.name()
			to, toLine := place(name)
			if to >= layer && line != toLine {
				problems = append(problems, fmt.Sprintf("%s imports %s, which is not below it", p.name(), name))
			}
		}
	}
	return problems
}

// interfaces are declarations alone, which whoever offers a value of a type that a database could
// keep imports: colours do.
const interfaces = "database/sql/driver"

// reaches lists what is reached although it is forbidden.
func reaches(ps []pkg) (problems []string) {
	for _, p := range ps {
		for _, rule := range forbidden {
			if !within(p.name(), rule.from) {
				continue
			}
			for _, to := range slices.Concat(rule.to...) {
				if i := slices.IndexFunc(p.Deps, func(dep string) bool { return within(dep, to) && dep != interfaces }); i >= 0 {
					problems = append(problems, fmt.Sprintf("%s reaches %s: %s", p.name(), p.Deps[i], rule.why))
				}
			}
		}
	}
	return problems
}

func TestArrowsRefuse(t *testing.T) {
	tests := []struct {
		name     string
		pkg      pkg
		up, deps int
	}{
		{"down", pkg{ImportPath: own("internal/server"), Imports: []string{own("internal/sandbox"), "net/http"}}, 0, 0},
		{"up", pkg{ImportPath: own("internal/sandbox"), Imports: []string{own("internal/server")}}, 1, 0},
		{"sideways", pkg{ImportPath: own("internal/daemon"), Imports: []string{own("internal/cli")}}, 1, 0},
		{"within-one-tree", pkg{ImportPath: own("internal/guest"), Imports: []string{own("internal/guest/files")}}, 0, 0},
		{"out-of-a-subtree", pkg{ImportPath: own("internal/server/wire"), Imports: []string{own("internal/server")}}, 1, 0},
		{"homeless", pkg{ImportPath: own("internal/nowhere")}, 1, 0},
		{"domain-reaches-http", pkg{ImportPath: own("internal/sandbox"), Deps: []string{"io", "net/http"}}, 0, 1},
		{"cli-reaches-gvisor", pkg{ImportPath: own("internal/cli"), Deps: []string{"gvisor.dev/gvisor/pkg/log"}}, 0, 1},
		{"a-name-that-only-begins-alike", pkg{ImportPath: own("internal/sandbox"), Deps: []string{"net/httpx"}}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := importsUp([]pkg{tt.pkg}); len(got) != tt.up {
				t.Errorf("importsUp = %q, want %d", got, tt.up)
			}
			if got := reaches([]pkg{tt.pkg}); len(got) != tt.deps {
				t.Errorf("reaches = %q, want %d", got, tt.deps)
			}
		})
	}
}
