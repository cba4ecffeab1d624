// Package agents drives real coding agents, as npm has them, in the built
// carboy's sandboxes, behind every wall, with a fake model: headless and on a
// terminal. It needs root, and CARBOY_AGENTS, where scripts/agents.sh installed
// them: make test-agents has both. It has nothing but tests, and no agent is
// patched.
package agents
