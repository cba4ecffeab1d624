package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// schema is the version of the JSON that a Report becomes. Fields are only
// added under the same number.
const schema = 1

// Report is what one run saw.
type Report struct {
	Schema   int           `json:"schema"`
	Version  string        `json:"version"` // of carboy
	Started  time.Time     `json:"started_at"`
	Took     float64       `json:"took_s"`
	Rounds   int           `json:"rounds"`
	Quick    bool          `json:"quick"`         // with small amounts, too few to compare with others'
	Cut      string        `json:"cut,omitempty"` // why it ended before its end
	Machine  Machine       `json:"machine"`
	Peers    []Peer        `json:"peers"`
	Groups   []GroupResult `json:"groups"`
	Leftover []string      `json:"leftover,omitempty"` // what could not be taken away
}

// Peer is something that carboy is measured against, or would be.
type Peer struct {
	Name  string `json:"name"`
	Found bool   `json:"found"`
	Note  string `json:"note"` // its version and where it is; or what is missing, and how to get it
}

// GroupResult is what the cases of a group showed.
type GroupResult struct {
	Name  string       `json:"name"`
	Title string       `json:"title"`
	Cases []CaseResult `json:"cases"`
}

// CaseResult is what one case showed.
type CaseResult struct {
	Name     string         `json:"name"`
	Metrics  []MetricResult `json:"metrics"`
	Failures int            `json:"failures"`          // runs that are in no number
	Reasons  []string       `json:"reasons,omitempty"` // of the failures
}

// MetricResult is one thing that a case measured. Less is better.
type MetricResult struct {
	Name string `json:"name"`
	Unit string `json:"unit"` // "ms" or "MiB"
	Summary
	Ratios  []Ratio   `json:"ratios,omitempty"`
	Samples []float64 `json:"samples"` // in their order
}

// Ratio is a median as a part of another case's.
type Ratio struct {
	To    string  `json:"to"`
	Ratio float64 `json:"ratio"`
}

// WriteTable writes r for a person.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "carboy %s\n%s\n", r.Version, r.Machine)
	for _, p := range r.Peers {
		if p.Found {
			fmt.Fprintf(&b, "%s: %s\n", p.Name, p.Note)
		}
	}
	fmt.Fprintf(&b, "%d rounds after one that does not count, each in an order of its own; ratios are those of medians\n", r.Rounds)
	if r.Quick {
		b.WriteString("quick: small amounts, for a look; not to be compared with other runs\n")
	}
	for _, g := range r.Groups {
		fmt.Fprintf(&b, "\n%s: %s\n", g.Name, g.Title)
		g.table(&b)
	}
	r.tail(&b)
	_, err := io.WriteString(w, escapeLines(b.String()))
	return err
}

// tail says what the tables don't.
func (r *Report) tail(b *strings.Builder) {
	line := "\nfailed, how often, and in no number above:\n"
	for _, g := range r.Groups {
		for _, c := range g.Cases {
			if c.Failures > 0 {
				fmt.Fprintf(b, "%s  %s/%s, %d: %s\n", line, g.Name, c.Name, c.Failures, strings.Join(c.Reasons, "; "))
				line = ""
			}
		}
	}
	line = "\nnot measured:\n"
	for _, p := range r.Peers {
		if !p.Found {
			fmt.Fprintf(b, "%s  %s: %s\n", line, p.Name, p.Note)
			line = ""
		}
	}
	if r.Cut != "" {
		fmt.Fprintf(b, "\ncut short: %s\n", r.Cut)
	}
	line = "\nleft behind:\n"
	for _, l := range r.Leftover {
		fmt.Fprintf(b, "%s  %s\n", line, l)
		line = ""
	}
}

// table writes the rows of g, a line for each case and metric.
func (g GroupResult) table(b *strings.Builder) {
	rows := [][]string{{"CASE", "WHAT", "N", "MEDIAN", "MIN", "MAX", "RATIO"}}
	for _, c := range g.Cases {
		name := c.Name
		measured := slices.ContainsFunc(c.Metrics, func(m MetricResult) bool { return m.N > 0 })
		for _, m := range c.Metrics {
			if m.N > 0 || !measured {
				rows = append(rows, m.row(name))
				name = ""
			}
		}
	}
	align(b, rows, 2, 5)
}

func (m MetricResult) row(name string) []string {
	if m.N == 0 {
		return []string{name, m.Name, "0", "-", "-", "-", ""}
	}
	var ratios []string
	for _, r := range m.Ratios {
		ratios = append(ratios, short(r.Ratio)+" of "+r.To)
	}
	return []string{
		name, m.Name, strconv.Itoa(m.N), short(m.Median) + " " + m.Unit, short(m.Min), short(m.Max), strings.Join(ratios, ", "),
	}
}

// short writes x with as many digits as mean something.
func short(x float64) string {
	switch a := math.Abs(x); {
	case a >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// align writes rows in columns, those of numbers, first to last, to the right.
func align(b *strings.Builder, rows [][]string, first, last int) {
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range rows {
		var line strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if first <= i && i <= last {
				line.WriteString(pad + c + "  ")
			} else {
				line.WriteString(c + pad + "  ")
			}
		}
		b.WriteString("  " + strings.TrimRight(line.String(), " ") + "\n")
	}
}

// escapeLines makes text that came from others' programs fit for a terminal.
func escapeLines(s string) string { return string(term.EscapeText([]byte(s))) }
