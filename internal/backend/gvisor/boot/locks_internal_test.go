package boot

import (
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// TestShareConns: of the connections to the gofer those are found that serve shares, whatever mounts
// of gVisor's own are between them.
func TestShareConns(t *testing.T) {
	spec := &specs.Spec{
		Annotations: map[string]string{annotationShares: "/workspace\n/mnt/b"},
		Mounts: []specs.Mount{
			{Type: "proc", Destination: "/proc"},
			{Type: "bind", Destination: "/tmp"},
			{Type: "bind", Destination: "/workspace"},
			{Type: "tmpfs", Destination: "/dev/shm"},
			{Type: "bind", Destination: "/mnt/a"},
			{Type: "bind", Destination: "/mnt/b"},
		},
	}
	for name, args := range map[string][]string{
		"each":     {"runsc-sandbox", "boot", "--io-fds=10", "--io-fds=11", "--io-fds=12", "--io-fds=13", "--io-fds=14", "id"},
		"together": {"runsc-sandbox", "boot", "--io-fds=10,11,12,13,14", "id"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := shareConns(spec, args), []int{12, 14}; !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
	spec.Annotations = nil
	if got := shareConns(spec, []string{"--io-fds=10", "--io-fds=11", "--io-fds=12"}); got != nil {
		t.Errorf("of no shares: %v", got)
	}
}
