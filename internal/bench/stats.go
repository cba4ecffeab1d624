package bench

import "slices"

// Summary sums up some samples.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// summarize returns the summary of samples, all zero where there are none. It
// leaves samples as they are. With an even number of them, the median is the
// mean of the two in the middle.
func summarize(samples []float64) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	s := slices.Sorted(slices.Values(samples))
	mid := len(s) / 2
	median := s[mid]
	if len(s)%2 == 0 {
		median = (s[mid-1] + s[mid]) / 2
	}
	return Summary{N: len(s), Median: median, Min: s[0], Max: s[len(s)-1]}
}

// ratio returns a to b, unless either has no samples or is not more than
// nothing.
func ratio(a, b Summary) (float64, bool) {
	if a.N == 0 || b.N == 0 || a.Median <= 0 || b.Median <= 0 {
		return 0, false
	}
	return a.Median / b.Median, true
}
