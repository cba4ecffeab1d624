package bottle

import (
	"path"
	"time"

	"github.com/carboy-sandbox/carboy/api"
)

// What steps do.
const (
	DoCA        = "ca"        // the gate's certificate is looked for inside
	DoRemotes   = "remotes"   // git is told what stands for them
	DoGit       = "git"       // user.name, user.email
	DoPrompt    = "prompt"    // a file of the home
	DoSkill     = "skill"     // in the provider's own directory
	DoWorkspace = "workspace" // git is made ready in it
	DoCopy      = "copy"      // a file of the host's
	DoWrite     = "write"     // a file of the agent's
	DoProvider  = "provider"  // directories, files and commands of its own, each a step
	DoStart     = "start"     // of the agent, where the daemon does it
)

// Tag is that of the agent among a sandbox's commands: of what the sandbox was made for.
const Tag = "main"

// Step is one thing that is done in a sandbox.
type Step struct {
	Do   string
	What string
	Argv []string // of git

	index int // of what it is about
}

// Steps are what s comes to in a sandbox, in this order; those of the provider are one.
func Steps(s *api.SetUp, networked bool) (steps []Step) {
	add := func(do, what string, index int, argv ...string) {
		steps = append(steps, Step{Do: do, What: what, Argv: argv, index: index})
	}
	if networked {
		add(DoCA, "the gate's certificate is trusted", 0)
	}
	if s.GitConfig != "" {
		add(DoRemotes, "git asks the gate", 0)
	}
	for _, f := range [][2]string{{"user.name", s.GitUser.Name}, {"user.email", s.GitUser.Email}} {
		if f[1] != "" {
			add(DoGit, f[0], 0, "git", "config", "--global", f[0], f[1])
		}
	}
	if s.Prompt != "" {
		add(DoPrompt, "~/"+promptFile, 0)
	}
	for i, name := range s.Skills {
		add(DoSkill, name, i)
	}
	if s.Work != nil {
		add(DoWorkspace, "git is ready in it", 0)
	}
	for i := range s.Copies {
		add(DoCopy, s.Copies[i].Target, i)
	}
	for i := range s.Files {
		add(DoWrite, s.Files[i].Path, i)
	}
	add(DoProvider, s.Agent.Provider, 0)
	return steps
}

// Times of steps.
const (
	commandTime = time.Minute      // of one command
	stepTime    = 2 * time.Minute  // of a step, which may be several
	copyTime    = 10 * time.Minute // of one that brings files
)

func limitOf(do string) time.Duration {
	switch do {
	case DoSkill, DoWorkspace, DoCopy:
		return copyTime
	}
	return stepTime
}

// promptFile is where a prompt is, below the home.
const promptFile = ".carboy-prompt.md"

// Home is the home inside of who runs commands.
func Home(user string) string {
	if user == "root" {
		return "/root"
	}
	return "/home/user"
}

// PromptFile is where the prompt is.
func PromptFile(home string) string { return path.Join(home, promptFile) }
