package learn

import (
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// services are those that were called, in order; nil where there are none.
func services(records []api.NetRecord) (names []string) {
	for i := range records {
		r := &records[i]
		if r.Protocol != protocolService || r.Verdict != allow {
			continue
		}
		if name := serviceOf(r); policy.ValidService(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// serviceOf is the service that a call was of.
func serviceOf(r *api.NetRecord) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.Path, "/"), "/")
	return name
}
