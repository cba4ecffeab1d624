package boot

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"runtime"

	gvlog "gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/container"
	runsc "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/role"
)

// suspendMain reads a gvisor.Order and has its instance written down.
func suspendMain(in io.Reader) error {
	runtime.LockOSThread()
	var p gvisor.Order
	if err := json.NewDecoder(in).Decode(&p); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if p.Rootless {
		if err := role.BecomeRoot(); err != nil {
			return err
		}
	}
	conf, err := runscConfig(&p)
	if err != nil {
		return err
	}
	gvlog.SetTarget(gvlog.GoogleEmitter{Writer: &gvlog.Writer{Next: io.Discard}})
	c, err := container.Load(conf.RootDir, container.FullID{ContainerID: p.ID}, container.LoadOpts{})
	if err != nil {
		return err
	}
	return c.Checkpoint(conf, filepath.Join(p.Dir, instance.DirMemoryNew), runsc.CheckpointOpts{
		Compression: statefile.CompressionLevelNone, ExcludeCommittedZeroPages: true,
	})
}
