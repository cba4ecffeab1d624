package bench

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSummarize(t *testing.T) {
	tests := []struct {
		name    string
		samples []float64
		want    Summary
	}{
		{"none", nil, Summary{}},
		{"one", []float64{3}, Summary{1, 3, 3, 3}},
		{"odd", []float64{9, 1, 5}, Summary{3, 5, 1, 9}},
		{"even", []float64{4, 1, 2, 100}, Summary{4, 3, 1, 100}},
		{"negative", []float64{-2, 0, 2}, Summary{3, 0, -2, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := append([]float64(nil), tt.samples...)
			if diff := cmp.Diff(tt.want, summarize(tt.samples)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, tt.samples); diff != "" {
				t.Errorf("the samples are not as they were: %s", diff)
			}
		})
	}
}

func TestRatio(t *testing.T) {
	of := func(n int, median float64) Summary { return Summary{N: n, Median: median} }
	tests := []struct {
		name string
		a, b Summary
		want float64
		ok   bool
	}{
		{"half", of(3, 1), of(3, 2), 0.5, true},
		{"nothing-measured", of(0, 0), of(3, 2), 0, false},
		{"nothing-to-compare", of(3, 1), of(0, 0), 0, false},
		{"to-zero", of(3, 1), of(3, 0), 0, false},
		{"below-zero", of(3, -1), of(3, 1), 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := ratio(tt.a, tt.b); got != tt.want || ok != tt.ok {
				t.Errorf("ratio = %v, %v; want %v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}
