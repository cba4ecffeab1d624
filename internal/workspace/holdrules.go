package workspace

// HoldRule is a kind of path that Apply leaves alone until the user names it,
// because something on the host executes it or takes orders from it.
type HoldRule struct {
	Pattern string // one name, or several joined by slashes, anywhere in a path; * as in a shell
	Reason  string
	Source  string // what says that it is obeyed: a manual, or a program's documentation
}

// The reasons, each short enough for a column.
const (
	reasonGit       = "git runs or obeys it on the host"
	reasonVCS       = "a version control system runs or obeys it on the host"
	reasonHooks     = "git hooks run it on the host"
	reasonEditor    = "an editor runs or obeys it when the directory is opened"
	reasonCI        = "CI runs it with its own secrets"
	reasonShell     = "a shell or version manager loads it on entering the directory"
	reasonStartup   = "a shell runs it when it starts"
	reasonEnv       = "tools load it as environment"
	reasonContainer = "an editor builds and enters a container from it"
	reasonAgent     = "an AI agent on the host takes orders from it"
	reasonPackage   = "a package manager or build tool takes registries, credentials or commands from it"
	reasonDebugger  = "a debugger runs it on start"
	reasonLanguage  = "an interpreter or virtual machine runs or obeys it when it starts"
	reasonDesktop   = "a desktop or login session starts or obeys it"
	reasonLogin     = "programs take hosts, keys or commands from it"
	reasonProgram   = "a program of the user's runs or obeys it when it starts"
	reasonCommands  = "commands are found in it by their names"
)

// holdGroup is rules of one reason and one source.
type holdGroup struct {
	reason, source string
	patterns       []string
}

// notHeld are names that a pattern of the table catches and that nothing
// loads.
var notHeld = map[string]bool{
	".env.example":  true,
	".env.sample":   true,
	".env.template": true,
	".env.dist":     true,
}

// HoldRules returns the table of what is held back by name. Held besides, by
// what they are: links that lead out of the workspace or to something held,
// bare repositories, .gitattributes that name a filter, diff or merge driver,
// and deletions of directories in which anything is held.
// Of two rules for one name the first counts.
func HoldRules() []HoldRule {
	var rules []HoldRule
	for _, groups := range [][]holdGroup{holdProjects, holdAgents, holdTools, holdHomes} {
		for _, g := range groups {
			for _, p := range g.patterns {
				rules = append(rules, HoldRule{p, g.reason, g.source})
			}
		}
	}
	return rules
}
