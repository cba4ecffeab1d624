package fetch

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// newsEvery is how often a terminal is drawn anew.
const newsEvery = 100 * time.Millisecond

// imageNews shows how far a pull or an import is: as bars on a terminal, which
// are gone at the end; else a line for each phase of each layer.
type imageNews struct {
	mu     sync.Mutex
	show   func(*imageNews, api.ImageProgress) // nil: nothing is shown
	w      io.Writer
	layers layerList
	told   map[[2]string]bool // layers and their phases
	drawn  int                // lines that are on the terminal
	last   time.Time          // when they were drawn
	timer  *time.Timer        // until they are drawn next; nil: nothing is new
	size   func() console.Size
}

// begin starts to tell; end must be called.
func (f *Fetcher) begin() *imageNews {
	n := &imageNews{w: f.Console.Stderr, told: map[[2]string]bool{}}
	switch {
	case f.Quiet:
	case f.Console.JSON:
		n.w, n.show = f.News, (*imageNews).line
	case console.IsTerminal(n.w):
		n.show = (*imageNews).bars
		n.size = func() console.Size { return console.SizeOf(n.w) }
	default:
		n.show = (*imageNews).phase
	}
	return n
}

// report shows p. It may be called by several goroutines.
func (n *imageNews) report(p api.ImageProgress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.show != nil {
		n.show(n, p)
	}
}

// end clears what is shown.
func (n *imageNews) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.show = nil
	if n.timer != nil {
		n.timer.Stop()
	}
	n.draw(nil)
}

// line writes p as it is; what carboy sends itself is told once.
func (n *imageNews) line(p api.ImageProgress) {
	if p.Phase == phaseSend {
		key := [2]string{"", phaseSend}
		if n.told[key] {
			return
		}
		n.told[key] = true
		p.Done = 0
	}
	_ = console.WriteJSONLine(n.w, api.ImageEvent{Progress: &p}) // its reader may have gone; the work goes on
}

// phase writes one line for each phase of each layer.
func (n *imageNews) phase(p api.ImageProgress) {
	key := [2]string{p.Layer, p.Phase}
	if n.told[key] {
		return
	}
	n.told[key] = true
	_, _ = fmt.Fprintf(n.w, "carboy: %s\n", console.Escape(phaseText(p))) // as above
}

// phaseText says what happens to a layer, or to the whole image.
func phaseText(p api.ImageProgress) string {
	text := map[string]string{
		"resolve": "looking it up", "download": "downloading", "unpack": "unpacking", "done": "done", phaseSend: "sending",
	}[p.Phase]
	if text == "" {
		text = p.Phase // of a newer daemon
	}
	if p.Layer == "" {
		return "image: " + text
	}
	text = "layer " + p.Layer + ": " + text
	if p.Phase == "download" && p.Total > 0 {
		text += " " + term.FormatSize(p.Total)
	}
	return text
}

// bars sees that all layers are drawn anew, soon and not too often.
func (n *imageNews) bars(p api.ImageProgress) {
	n.layers.put(p)
	if n.timer == nil {
		n.timer = time.AfterFunc(max(0, newsEvery-time.Since(n.last)), n.redraw)
	}
}

func (n *imageNews) redraw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timer = nil
	if n.show == nil {
		return // it has ended meanwhile
	}
	n.last = time.Now()
	n.draw(n.layers.frame(n.size()))
}

// draw puts lines in the place of those that were drawn before.
func (n *imageNews) draw(lines []string) {
	if n.drawn == 0 && len(lines) == 0 {
		return
	}
	var b strings.Builder
	if n.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", n.drawn)
	}
	b.WriteString("\r\x1b[J")
	for _, l := range lines {
		b.WriteString(l)
		b.WriteString("\r\n") // the terminal may be raw
	}
	n.drawn = len(lines)
	_, _ = io.WriteString(n.w, b.String()) // no harm where it fails
}

// layerList is the layers of one image in the order in which they came up.
type layerList struct {
	all []api.ImageProgress
}

func (l *layerList) put(p api.ImageProgress) {
	for i := range l.all {
		if l.all[i].Layer == p.Layer {
			l.all[i] = p
			return
		}
	}
	l.all = append(l.all, p)
}

// frame is what a terminal of size s shows: a line for each layer that is at
// work, as far as there is room, and one for those that are done.
func (l *layerList) frame(s console.Size) (lines []string) {
	done, hidden := 0, 0
	room := max(1, int(s.Rows)-3)
	for _, p := range l.all {
		switch {
		case p.Phase == "done" && p.Layer == "":
		case p.Phase == "done":
			done++
		case len(lines) >= room:
			hidden++
		default:
			lines = append(lines, barLine(p, int(s.Cols)-1))
		}
	}
	if done+hidden > 0 {
		text := console.Count(done, "layer") + " done"
		if hidden > 0 {
			text += fmt.Sprintf(", %d more at work", hidden)
		}
		lines = append(lines, cutText(text, int(s.Cols)-1))
	}
	return lines
}

// barLine is one layer in at most width characters.
func barLine(p api.ImageProgress, width int) string {
	const bar = 24
	what := p.Layer
	if what == "" {
		what = "image"
	}
	phase := map[string]string{"resolve": "looking up", "download": "download", "unpack": "unpack", phaseSend: "sending"}[p.Phase]
	if phase == "" {
		phase = p.Phase
	}
	text := fmt.Sprintf("%-12s  %-10s", console.Escape(what), console.Escape(phase))
	switch {
	case p.Total > 0:
		full := int(bar * float64(min(max(p.Done, 0), p.Total)) / float64(p.Total))
		text += "  [" + strings.Repeat("=", full) + strings.Repeat(" ", bar-full) + "]  " + term.FormatSize(p.Done) + " of " + term.FormatSize(p.Total)
	case p.Done > 0:
		text += "  " + term.FormatSize(p.Done)
	}
	return cutText(text, width)
}

// cutText cuts s to width characters, so that it takes one line of a terminal.
func cutText(s string, width int) string {
	if r := []rune(s); len(r) > max(width, 0) {
		return string(r[:max(width, 0)])
	}
	return s
}
