package scan

// SearcherForTest is Searcher with another bound on what one text may become.
func (r *Rules) SearcherForTest(most, size int64) *Searcher { return r.searcher(most, size) }
