package bench

// LookAround describes the machine, for a run that works in dir.
func LookAround(dir string) Machine { return lookAround(dir) }

// Of fills m from samples, which it keeps.
func (m MetricResult) Of(samples []float64) MetricResult {
	m.Summary, m.Samples = Summarize(samples), samples
	return m
}

// Against adds how large m is beside another, where both have samples.
func (m MetricResult) Against(name string, other MetricResult) MetricResult {
	if r, ok := ratio(m.Summary, other.Summary); ok {
		m.Ratios = append(m.Ratios, Ratio{To: name, Ratio: r})
	}
	return m
}
