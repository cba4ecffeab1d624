package e2b

import (
	"net/http"
	"time"

	"github.com/carboy-sandbox/carboy/internal/node"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// cluster is the only cluster there is: E2B's own name for the local one.
const cluster = team.NoID

// nodeView is a machine as E2B has it.
type nodeView struct {
	ID              string      `json:"id"`
	Instance        string      `json:"serviceInstanceID"`
	Cluster         string      `json:"clusterID"`
	Status          node.Status `json:"status"`
	StatusChangedAt time.Time   `json:"statusChangedAt"`
	Sandboxes       int         `json:"sandboxCount"`
	Metrics         nodeMetrics `json:"metrics"`
	Creates         uint64      `json:"createSuccesses"`
	Failures        uint64      `json:"createFails"`
	Starting        *int        `json:"sandboxStartingCount,omitempty"` // in lists alone
	Version         string      `json:"version"`
	Commit          string      `json:"commit"`
	Machine         machineInfo `json:"machineInfo"`
}

type nodeMetrics struct {
	AllocatedCPU    uint32       `json:"allocatedCPU"`
	AllocatedMemory int64        `json:"allocatedMemoryBytes"`
	CPUPercent      int          `json:"cpuPercent"`
	MemoryUsed      int64        `json:"memoryUsedBytes"`
	CPUs            int          `json:"cpuCount"`
	MemoryTotal     int64        `json:"memoryTotalBytes"`
	Disks           []diskMetric `json:"disks"`
	HugeTotal       int64        `json:"hugePagesTotal"`
	HugeUsed        int64        `json:"hugePagesUsed"`
	HugeReserved    int64        `json:"hugePagesReserved"`
	HugePage        int64        `json:"hugePageSizeBytes"`
}

type diskMetric struct {
	MountPoint string `json:"mountPoint"`
	Device     string `json:"device"`
	Type       string `json:"filesystemType"`
	Used       int64  `json:"usedBytes"`
	Total      int64  `json:"totalBytes"`
}

type machineInfo struct {
	Family    string `json:"cpuFamily"`
	Model     string `json:"cpuModel"`
	ModelName string `json:"cpuModelName"`
	Arch      string `json:"cpuArchitecture"`
}

func viewNode(i node.Info) nodeView {
	return nodeView{
		ID: i.ID, Instance: i.Instance, Cluster: cluster, Status: i.Status, StatusChangedAt: i.ChangedAt,
		Sandboxes: i.Running, Creates: i.Counts.Creates, Failures: i.Counts.Failures, Version: i.Version, Commit: i.Commit,
		Machine: machineInfo{i.Family, i.Model, i.ModelName, i.Arch},
		Metrics: nodeMetrics{
			AllocatedCPU: i.AllocatedCPUs, AllocatedMemory: i.AllocatedMemory, CPUPercent: i.CPUPercent,
			MemoryUsed: i.MemoryUsed, CPUs: i.CPUs, MemoryTotal: i.MemoryTotal,
			HugeTotal: i.HugeTotal, HugeUsed: i.HugeUsed, HugeReserved: i.HugeReserved, HugePage: i.HugePage,
			Disks: []diskMetric{{i.Disk.MountPoint, i.Disk.Device, i.Disk.Type, i.Disk.Used, i.Disk.Total}},
		},
	}
}

// inCluster reads the cluster that a request names, and reports whether it is
// the one that there is.
func inCluster(r *http.Request) (bool, error) {
	q, err := parse(r, "clusterID")
	if err != nil {
		return false, err
	}
	return clusterIsOurs(q.get("clusterID"))
}

func clusterIsOurs(id string) (bool, error) {
	if id == "" {
		return true, nil
	}
	if !team.ValidID(id) {
		return false, sandbox.Errorf(sandbox.Invalid, "clusterID: not a UUID in lower case")
	}
	return id == cluster, nil
}

func (h *handler) listNodes(w http.ResponseWriter, r *http.Request, _ Caller) error {
	here, err := inCluster(r)
	if err != nil {
		return err
	}
	out := []nodeView{}
	if here {
		n, err := h.node(r, "")
		if err != nil {
			return err
		}
		out = append(out, n)
	}
	wire.JSON(w, http.StatusOK, out)
	return nil
}

// node looks at the machine. With an ID, it must be the machine's.
func (h *handler) node(r *http.Request, id string) (nodeView, error) {
	if h.o.Teams.Node == nil {
		return nodeView{}, lacks("nodes")
	}
	if id != "" && id != h.o.Teams.Node.ID() {
		return nodeView{}, noNode(id)
	}
	i, err := h.o.Teams.Node.Info(r.Context())
	if err != nil {
		return nodeView{}, err
	}
	v := viewNode(i)
	if id == "" {
		v.Starting = &i.Counts.Starting
	}
	return v, nil
}

func noNode(id string) error {
	return sandbox.Errorf(sandbox.NotFound, "node %.80q: not found", id)
}

func (h *handler) getNode(w http.ResponseWriter, r *http.Request, _ Caller) error {
	id := r.PathValue("id")
	here, err := inCluster(r)
	if err == nil && !here {
		err = noNode(id)
	}
	if err != nil {
		return err
	}
	n, err := h.node(r, id)
	if err == nil {
		wire.JSON(w, http.StatusOK, n)
	}
	return err
}

func (h *handler) changeNode(w http.ResponseWriter, r *http.Request, _ Caller) error {
	var req struct {
		Cluster string      `json:"clusterID"`
		Status  node.Status `json:"status"`
	}
	id := r.PathValue("id")
	err := wire.Decode(r, &req, false)
	if err != nil {
		return err
	}
	if h.o.Teams.Node == nil {
		return lacks("nodes")
	}
	here, err := clusterIsOurs(req.Cluster)
	if err == nil && (!here || id != h.o.Teams.Node.ID()) {
		err = noNode(id)
	}
	if err == nil {
		err = h.o.Teams.Node.SetStatus(r.Context(), req.Status)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
