package sandbox_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestCallersLabels(t *testing.T) {
	for _, tt := range []struct {
		name   string
		labels map[string]string
		want   sandbox.Kind
	}{
		{"none", nil, ""},
		{"their-own", map[string]string{"carboy": "1", "team.carboy.session": "x", "Carboy.session": "y"}, ""},
		{"a-session's", map[string]string{"a": "b", "carboy.session": "person_alice"}, sandbox.Invalid},
		{"one-that-is-not-yet", map[string]string{"carboy.": ""}, sandbox.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := sandbox.CheckCallersLabels(tt.labels); sandbox.KindOf(err) != tt.want {
				t.Errorf("CheckCallersLabels = %v, want kind %q", err, tt.want)
			}
		})
	}
}
