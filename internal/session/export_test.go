package session

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

func init() { defect = func(err error) { panic(err) } }

// Leave gives up a Runtime whose daemon was killed.
func (r *Runtime) Leave() { r.detachAll() }

// Wrong tells what of a Runtime does not fit together while nobody calls it,
// but for those who are said to hold sessions of an owner, by their key.
func (r *Runtime) Wrong(owner string, held map[string]int) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	records, err := r.o.Store.Sessions(context.Background())
	if err != nil {
		say("%v", err)
	}
	onDisk := map[id]record.Session{}
	for _, rec := range records {
		onDisk[id{rec.Owner, rec.Key}] = rec
	}
	boxes, err := r.o.Manager.List(context.Background(), sandbox.Caller{Owner: "uid:0", Admin: true}, sandbox.Filter{})
	if err != nil {
		say("%v", err)
	}
	for _, sb := range boxes {
		n := slices.IndexFunc(records, func(rec record.Session) bool { return rec.Sandbox == sb.Spec.Name })
		if n < 0 {
			say("sandbox %s is left without a record", sb.Spec.Name)
		} else if records[n].State == record.Asleep && sb.State == sandbox.StateRunning {
			say("%s is asleep, and its sandbox runs", records[n].Key)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	places, running := 0, 0
	for i, s := range r.sessions {
		if s.state != awake && s.state != asleep {
			say("%s is left %s", i.key, s.state)
		}
		if s.counted {
			places++
		}
		if s.counted != (s.state == awake) {
			say("%s is %s, and has a place: %v", i.key, s.state, s.counted)
		}
		if i.owner == owner && s.leases != held[i.key] {
			say("%s has %d leases, want %d", i.key, s.leases, held[i.key])
		}
		for name, t := range map[string]*turn{"turn": &s.turn, "life": &s.life, "procTurn": &s.procTurn, "growing": &s.growing} {
			if t.held() {
				say("%s of %s is held", name, i.key)
			}
		}
		for pid, m := range s.procs {
			switch {
			case m.p == nil:
				say("process %s of %s is left half started", pid, i.key)
			case m.alive() != m.p.Running():
				say("process %s of %s counts as running: %v; it runs: %v", pid, i.key, m.alive(), m.p.Running())
			}
			if m.alive() {
				running++
			}
		}
		rec := onDisk[i]
		delete(onDisk, i)
		if rec.State != recorded[s.state] || rec.ID != s.rec.ID {
			say("%s is %s, and on the disk %q", i.key, s.state, rec.State)
		}
		if is, want := slices.Sorted(maps.Keys(rec.Processes)), slices.Sorted(maps.Keys(s.procs)); !slices.Equal(is, want) {
			say("%s has the processes %q, and on the disk %q", i.key, want, is)
		}
	}
	for i := range onDisk {
		say("%s is on the disk alone", i.key)
	}
	if places != r.taken || running != r.running {
		say("%d places and %d processes are counted, want %d and %d", r.taken, r.running, places, running)
	}
	return wrong
}
