package fetch

import (
	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
)

// Frame is what a terminal of that size shows once all of news came.
func Frame(cols, rows uint32, news ...api.ImageProgress) []string {
	var l layerList
	for _, p := range news {
		l.put(p)
	}
	return l.frame(console.Size{Cols: cols, Rows: rows})
}
