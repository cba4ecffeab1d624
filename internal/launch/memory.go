package launch

import (
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// maxAgentMemory is the most that an agent has of whom nobody said how much it may have.
const maxAgentMemory = 8 << 30

// AgentMemory is how much memory an agent has that nobody set: half of this machine's, at
// most 8 GiB, and what any sandbox has where the machine does not tell.
func AgentMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return sandbox.DefaultMemory
	}
	return agentMemory(int64(info.Totalram) * int64(info.Unit))
}

func agentMemory(total int64) int64 {
	const whole = 1 << 20
	return max(256<<20, min(total/2, maxAgentMemory)/whole*whole)
}
