package e2b_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/tenant/meter"
)

// samples are those of each sandbox.
type samples map[string][]meter.Sample

func (s samples) Samples(id string, from, to time.Time) (out []meter.Sample) {
	for _, x := range s[id] {
		if (from.IsZero() || !x.Time.Before(from)) && (to.IsZero() || !x.Time.After(to)) {
			out = append(out, x)
		}
	}
	return out
}

func (s samples) Last(id string) (meter.Sample, bool) {
	if len(s[id]) == 0 {
		return meter.Sample{}, false
	}
	return s[id][len(s[id])-1], true
}

func TestMetrics(t *testing.T) {
	r := newRig(t)
	for range 2 {
		r.json(t, "POST", "/sandboxes", `{"templateID":"base"}`, 201, nil)
	}
	id, idle := r.instances[0].ID, r.instances[1].ID
	for i := range 3 {
		r.samples[id] = append(r.samples[id], meter.Sample{
			Time: epoch.Add(time.Duration(5*i) * time.Second), CPUs: 1.5, CPU: 12.5,
			Memory: 1 << 20, MemoryTotal: 2 << 20, Cache: 3 << 20, Disk: 4 << 20, DiskTotal: 5 << 20,
		})
	}
	var got []map[string]any
	r.json(t, "GET", "/sandboxes/"+id+"/metrics", "", 200, &got)
	want := map[string]any{
		"timestamp": "2026-01-02T03:04:05Z", "timestampUnix": float64(epoch.Unix()), "cpuCount": 2.0, "cpuUsedPct": 12.5,
		"memUsed": 1048576.0, "memTotal": 2097152.0, "memCache": 3145728.0, "diskUsed": 4194304.0, "diskTotal": 5242880.0,
	}
	if len(got) != 3 || !cmp.Equal(got[0], want) {
		t.Errorf("%d points, the first (-want +got):\n%s", len(got), cmp.Diff(want, got[0]))
	}
	for query, n := range map[string]int{
		fmt.Sprintf("start=%d", epoch.Unix()+5):                            2,
		fmt.Sprintf("end=%d", epoch.Unix()):                                1,
		fmt.Sprintf("start=%d&end=%d", epoch.Unix()+1, epoch.Unix()+9):     1,
		fmt.Sprintf("start=%d&end=%d", epoch.Unix()+100, epoch.Unix()+200): 0,
	} {
		r.json(t, "GET", "/sandboxes/"+id+"/metrics?"+query, "", 200, &got)
		if len(got) != n {
			t.Errorf("%s: %d points, want %d", query, len(got), n)
		}
	}
	for _, bad := range []string{"start=x", "start=-1", "end=1.5", "start=2&end=1", "step=1", "end=99999999999999999999"} {
		r.json(t, "GET", "/sandboxes/"+id+"/metrics?"+bad, "", 400, nil)
	}
	var many struct{ Sandboxes map[string]map[string]any }
	r.json(t, "GET", "/sandboxes/metrics?sandbox_ids="+id+","+idle+",sb_aaaaaaaaaaaaaaaaaaaa", "", 200, &many)
	if len(many.Sandboxes) != 1 || many.Sandboxes[id]["timestampUnix"] != float64(epoch.Unix()+10) {
		t.Errorf("of many: %v", many)
	}
	for _, bad := range []string{"", "?sandbox_ids=", "?sandbox_ids=x", "?sandbox_ids=" + id + ",", "?ids=" + id} {
		r.json(t, "GET", "/sandboxes/metrics"+bad, "", 400, nil)
	}
	r.caller.Caller = sandbox.Caller{Owner: "key:b"}
	many.Sandboxes = nil
	r.json(t, "GET", "/sandboxes/metrics?sandbox_ids="+id, "", 200, &many)
	if len(many.Sandboxes) != 0 {
		t.Errorf("another's are told: %v", many)
	}
	r.json(t, "GET", "/sandboxes/"+id+"/metrics", "", 404, nil)
	r.caller.Read = false
	r.json(t, "GET", "/sandboxes/metrics?sandbox_ids="+id, "", 403, nil)
}
