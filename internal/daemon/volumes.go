package daemon

import (
	"fmt"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
	"github.com/carboy-sandbox/carboy/internal/volume"
)

// volumes are those of the home, or none.
type volumes struct{ service *volume.Service }

func openVolumes(open func() (*volume.Service, error)) (v volumes, err error) {
	if open == nil {
		return v, nil
	}
	if v.service, err = open(); err != nil {
		return v, fmt.Errorf("open volumes: %w", err)
	}
	return v, nil
}

func (v volumes) close() {
	if v.service != nil {
		v.service.Close()
	}
}

// offer lets sandboxes mount them.
func (v volumes) offer(o *sandbox.Options) {
	if v.service != nil {
		o.Volumes = v.service
	}
}

// bind has the service know which sandboxes use them, and how many one owner may
// have.
func (v volumes) bind(m *sandbox.Manager, book *team.Book) {
	v.service.Bound(func(owner string) int { return book.Limits(owner).Volumes })
	v.service.Bind(m)
}

func (c Config) checkVolumes() error {
	switch {
	case c.VolumeSize < volume.MinSize || c.VolumeMaxSize < c.VolumeSize || c.VolumeMaxSize > disk.MaxBytes:
		return sandbox.Errorf(sandbox.Invalid, "volume_size, volume_max_size: not two sizes from 16m to 8t, the first no more than the second").
			WithHint(`"volume_size": "8g", "volume_max_size": "64g"`)
	case c.VolumesPerOwner < 1:
		return sandbox.Errorf(sandbox.Invalid, "volumes_per_owner %d: less than 1", c.VolumesPerOwner).WithHint("leave it out")
	}
	return nil
}
