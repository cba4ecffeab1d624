// Package bottle sets sandboxes up for agents, as the daemon: git, prompt, skills, workspace, and
// what the agent's provider needs. Each step has a time, says by itself what can't be done, and
// leads to the same where it is done again; what was lost on the way is tried once more, and never
// what ran out of time or memory.
//
// It does as the sandbox's user what it does, and takes from the daemon's host what the caller
// can read alone. It undoes nothing: a create that fails has the sandbox removed. What the
// sandbox says is bounded and escaped.
package bottle
