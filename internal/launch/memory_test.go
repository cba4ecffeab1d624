package launch

import "testing"

func TestAgentMemory(t *testing.T) {
	for total, want := range map[int64]int64{
		4 << 30: 2 << 30, 16 << 30: 8 << 30, 64 << 30: 8 << 30, 3<<30 + 12345: 3 << 29, 64 << 20: 256 << 20,
	} {
		if got := agentMemory(total); got != want {
			t.Errorf("of %d: %d, want %d", total, got, want)
		}
	}
	if got := AgentMemory(); got < 256<<20 || got > 8<<30 {
		t.Errorf("of this machine: %d", got)
	}
}
