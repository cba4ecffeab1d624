package project

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/launch"
)

// Into adds what the file says to what was typed, which wins: given reports whether a
// flag was. It returns the keys that were taken, sorted.
//
// A list of the file's is added to the flag's. --image, --template and --snapshot each
// stand in for the file's image and template; --network and --policy for all that it
// says of the network and of secrets.
func (f *File) Into(s *launch.Spec, given func(flag string) bool) []string {
	t := &taker{given: given}
	if !given("image") && !given("template") && !given("snapshot") {
		take(t, "image", &s.Image, f.Image.string)
		s.ImageNamed = f.Image.string != ""
		take(t, "template", &s.Template, f.Template.string)
	}
	if !given("isolation") {
		take(t, "isolation", &s.Isolation, f.Isolation.string)
	}
	if !given("user") {
		take(t, "user", &s.User, f.User.string)
	}
	if !given("read-only") {
		take(t, "read_only_root", &s.ReadOnly, f.ReadOnly)
	}
	if !given("ttl") {
		take(t, "ttl", &s.TTL, time.Duration(f.TTL))
	}
	if !given("network") && !given("policy") {
		f.network(t, s)
	}
	f.limits(t, s)
	addTo(t, "caches", &s.Caches, f.Caches, whole)
	addTo(t, "volumes", &s.Volumes, f.Volumes, whole)
	addTo(t, "ports", &s.Publish, f.Ports, whole)
	if len(f.Env) > 0 {
		s.Env.Base = maps.Clone(f.Env)
		t.keys = append(t.keys, "env")
	}
	slices.Sort(t.keys)
	return t.keys
}

// network takes what the file says of it. Off is for who has not typed otherwise.
func (f *File) network(t *taker, s *launch.Spec) {
	if len(s.Allow) == 0 && len(s.Secrets) == 0 || f.Network.string != "off" {
		take(t, "network", &s.Network, f.Network.string)
	}
	addTo(t, "allow", &s.Allow, f.Allow, whole)
	addTo(t, "secrets", &s.Secrets, f.Secrets, func(arg string) string {
		name, _, _ := strings.Cut(arg, "=")
		return name
	})
}

func (f *File) limits(t *taker, s *launch.Spec) {
	l := f.Limits
	if !t.given("cpus") {
		take(t, "limits.cpus", &s.CPUs, l.CPUs)
	}
	if !t.given("memory") {
		take(t, "limits.memory", &s.Memory, int64(l.Memory))
	}
	if !t.given("pids") {
		take(t, "limits.pids", &s.PIDs, l.PIDs)
	}
	if !t.given("disk") {
		take(t, "limits.disk", &s.Disk, int64(l.Disk))
	}
}

// taker notes which keys were taken.
type taker struct {
	given func(flag string) bool
	keys  []string
}

func take[T comparable](t *taker, key string, to *T, v T) {
	var none T
	if v != none {
		*to = v
		t.keys = append(t.keys, key)
	}
}

// addTo adds to a list what it lacks: name says what two that are the same share.
func addTo[K kind](t *taker, key string, to *[]string, list []word[K], name func(string) string) {
	for _, v := range list {
		if !slices.ContainsFunc(*to, func(had string) bool { return name(had) == name(v.string) }) {
			*to = append(*to, v.string)
			if !slices.Contains(t.keys, key) {
				t.keys = append(t.keys, key)
			}
		}
	}
}

func whole(s string) string { return s }
