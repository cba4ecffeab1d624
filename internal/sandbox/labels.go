package sandbox

import (
	"maps"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// ReservedLabels begins the labels that Carboy itself gives.
const ReservedLabels = "carboy."

// CheckCallersLabels refuses the labels of a caller that are Carboy's to give:
// by them it knows its own.
func CheckCallersLabels(labels map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if strings.HasPrefix(k, ReservedLabels) && !weak.On(weak.SessionMarkForged) {
			return Errorf(Invalid, "label %s: names that begin with %s are Carboy's own", refText(k), ReservedLabels).
				WithHint("give it another name")
		}
	}
	return nil
}
