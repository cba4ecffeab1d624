package changes

// LineCounter counts the lines of a patch.
type LineCounter = lineCounter

// Counts are what it counted.
func (c *lineCounter) Counts() (added, removed int) { return c.added, c.removed }
