package session_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/test/long"
)

const (
	modelSessions  = 2
	modelProcesses = 2
	modelKeep      = 2 * time.Hour
	// modelSlack is how much later than due Run may look.
	modelSlack = 40 * time.Second
)

var (
	modelKeys = []string{"a", "b", "c"}
	modelPids = []string{"p", "q"}
)

// holding is a session as its owner may expect it.
type holding struct {
	asleep  bool
	files   bool // something was put into its workspace
	cpus    float64
	mounts  bool            // it has an extra mount
	dead    bool            // its sandbox ended by itself, and was not wanted since
	removed bool            // its sandbox was removed behind its back
	running map[string]bool // managed processes
	held    int             // Uses
	used    time.Time       // as it says itself
	slept   [2]time.Time    // it fell asleep between these
}

// fresh is what a session is that was made, or made anew.
func (k *holding) fresh() {
	k.asleep, k.files, k.dead, k.removed = false, false, false, false
	clear(k.running)
}

// model drives daemons over one world, and knows what sessions there are.
type model struct {
	w    *world
	d    *daemon
	root string
	is   map[string]*holding
	uses []heldUse
}

type heldUse struct {
	of  *holding
	use *session.Use
}

func modelConfig(root string) session.Config {
	c, keep := config(), int(modelKeep/time.Second)
	c.AllowedMountRoots = []string{root}
	c.KeepIdleSec = &keep
	c.Limits.MaxSessions, c.Limits.MaxProcesses = modelSessions, modelProcesses
	return c
}

func (m *model) awake() (n int) {
	for _, k := range m.is {
		if !k.asleep {
			n++
		}
	}
	return n
}

func (m *model) processes() (n int) {
	for _, k := range m.is {
		n += len(k.running)
	}
	return n
}

// spec is a request for a session.
func (m *model) spec(key, cmd string, cpus float64, mounts bool) sessions.Spec {
	s := asked(key, cmd)
	s.CPUs = cpus
	if mounts {
		s.ExtraMounts = []sessions.Mount{{HostPath: m.root, MountPath: "/mnt/x", Mode: "ro"}}
	}
	return s
}

// drawSpec is a request, mostly for what is there.
func (m *model) drawSpec(t *rapid.T, cmd string) sessions.Spec {
	key := rapid.SampledFrom(modelKeys).Draw(t, "key")
	cpus, mounts := 1.0, false
	if k := m.is[key]; k != nil {
		cpus, mounts = k.cpus, k.mounts
	}
	switch rapid.IntRange(0, 9).Draw(t, "otherwise") {
	case 0:
		cpus = 3 - cpus
	case 1:
		mounts = !mounts
	}
	return m.spec(key, cmd, cpus, mounts)
}

// acquire is what becomes of a session by a call that asks for it.
func (m *model) acquire(spec sessions.Spec) (class string) {
	k, mounts := m.is[spec.SessionID], len(spec.ExtraMounts) > 0
	switch {
	case k == nil || k.asleep:
		if m.awake() >= modelSessions {
			return langbot.ClassCapacity
		}
	case k.cpus != spec.CPUs:
		return langbot.ClassSessionConflict
	}
	if k == nil {
		k = &holding{cpus: spec.CPUs, mounts: mounts, running: map[string]bool{}}
		m.is[spec.SessionID] = k
	}
	if k.cpus != spec.CPUs || k.mounts != mounts || k.removed {
		k.fresh()
	}
	if k.dead || k.asleep {
		clear(k.running)
	}
	k.asleep, k.dead, k.cpus, k.mounts = false, false, spec.CPUs, mounts
	return ""
}

// existing is acquire for a call that wants one as it is.
func (m *model) existing(key string) (class string) {
	k := m.is[key]
	if k == nil {
		return langbot.ClassSessionNotFound
	}
	return m.acquire(m.spec(key, "", k.cpus, k.mounts))
}

func wants(t *rapid.T, what string, err error, class string) bool {
	if got := profile.Class(err); got != class {
		t.Fatalf("%s = %v (class %q), want class %q", what, err, got, class)
	}
	return err == nil
}

// observe takes from the sessions when they were used.
func (m *model) observe(t *rapid.T) {
	for key, k := range m.is {
		info, err := m.d.Get(context.Background(), ws, key)
		if err != nil {
			t.Fatalf("Get %s: %v", key, err)
		}
		k.used = info.LastUsedAt
	}
}

// Check wants all to be as it is expected.
func (m *model) Check(t *rapid.T) {
	synctest.Wait()
	list, err := m.d.List(context.Background(), ws)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	held, got := map[string]int{}, map[string]string{}
	for _, info := range list {
		var running []string
		for pid, p := range info.Processes {
			if p.Status == sessions.ProcessRunning {
				running = append(running, pid)
			}
		}
		slices.Sort(running)
		got[info.SessionID] = fmt.Sprint("asleep ", info.Asleep, " cpus ", info.CPUs, " running ", running, " active ", info.Active)
	}
	want := map[string]string{}
	for key, k := range m.is {
		held[key] = k.held
		want[key] = fmt.Sprint("asleep ", k.asleep, " cpus ", k.cpus, " running ", slices.Sorted(maps.Keys(k.running)), " active ", k.held)
	}
	if !maps.Equal(got, want) {
		t.Fatalf("sessions %q, want %q", got, want)
	}
	if wrong := m.d.Wrong(ws.Owner, held); len(wrong) > 0 {
		t.Fatalf("%q", wrong)
	}
}

// end deletes all, and wants nothing to be left.
func (m *model) end(t *rapid.T) {
	for len(m.uses) > 0 {
		m.Release(t)
	}
	if err := m.d.DropAll(context.Background(), "", nil); err != nil {
		t.Fatalf("DropAll: %v", err)
	}
	pass(time.Minute)
	m.is = map[string]*holding{}
	m.Check(t)
	if n := m.d.Metrics(); cmp.Or(n.Sessions, n.Asleep, n.Processes) != 0 {
		t.Fatalf("metrics %+v", n)
	}
	if boxes, _ := m.w.fake.Instances(context.Background()); len(boxes) != 0 {
		t.Fatalf("boxes %q are left", boxes)
	}
}

// Whatever is asked of sessions, and whatever becomes of their sandboxes and of
// the daemon, there are those that were asked for, with what they were given.
func TestModel(t *testing.T) {
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue { // nobody said how many
		if err := flag.Set(checks.Name, strconv.Itoa(long.Rounds(30, 100))); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = flag.Set(checks.Name, checks.DefValue) }()
	}
	root := t.TempDir()
	// Rapid counts in true time: one bubble for all would be over with a day of
	// its own.
	rapid.Check(t, func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(t *testing.T) {
			defer func() { failure = recover() }()
			m := &model{w: newWorld(), root: root, is: map[string]*holding{}}
			m.d = m.w.boot(panicker{}, modelConfig(root))
			defer func() {
				m.d.shutdown()
				m.w.check(t)
			}()
			m.drive(rt)
		})
		if failure != nil {
			panic(failure) // which is how rapid is told
		}
	})
}

func (m *model) drive(t *rapid.T) {
	t.Repeat(map[string]func(*rapid.T){
		"": m.Check, "exec": m.Exec, "exec-too": m.Exec, "create": m.Create, "release": m.Release, "borrow": m.Borrow,
		"delete": m.Delete, "start-process": m.StartProcess, "stop-process": m.StopProcess, "attach": m.Attach,
		"box-dies": m.BoxDies, "box-removed": m.BoxRemoved, "box-stopped": m.BoxStopped, "time-passes": m.TimePasses,
		"restart": m.Restart, "burst": m.Burst,
	})
	m.end(t)
}
