package learn

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Text is the policy as YAML, commented. It is read again: an error says that it does not
// mean the policy.
func (l *Learned) Text() ([]byte, error) {
	w := &writer{comments: true}
	if !l.from.IsZero() {
		w.comment(0, fmt.Sprintf("learned from what was recorded from %s to %s UTC", l.from.UTC().Format("2006-01-02 15:04:05"), l.to.UTC().Format("2006-01-02 15:04:05")))
	}
	w.policy(&l.Policy, l)
	for _, line := range l.unsaid {
		w.comment(0, line)
	}
	back, err := policy.Parse(w.b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("what was learned can't be written: %w", err)
	}
	if !reflect.DeepEqual(back, l.Policy) {
		return nil, fmt.Errorf("what was learned can't be written: it would be read as something else")
	}
	return w.b.Bytes(), nil
}

// Plain is a policy as YAML without comments, to compare one with another.
func Plain(p *policy.Policy) []byte {
	w := &writer{}
	w.policy(p, &Learned{})
	return w.b.Bytes()
}

type writer struct {
	b        bytes.Buffer
	comments bool
}

func (w *writer) line(indent int, text string) {
	w.b.WriteString(strings.Repeat("  ", indent) + text + "\n")
}

// comment writes one line, whatever is in text.
func (w *writer) comment(indent int, text string) {
	const most = 400
	if !w.comments {
		return
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, term.Escape(text))
	if len(text) > most {
		text = text[:most] + "..."
	}
	w.line(indent, strings.TrimRight("# "+text, " "))
}

func (w *writer) policy(p *policy.Policy, l *Learned) {
	if p.Version != 0 {
		w.line(0, "version: "+strconv.Itoa(p.Version))
	}
	if p.Default != "" {
		w.line(0, "default: "+scalar(p.Default))
	}
	if len(p.Presets) > 0 {
		w.line(0, "presets:")
		for _, name := range p.Presets {
			w.comment(1, name+" "+l.presets[name])
			w.line(1, "- "+scalar(name))
		}
	}
	w.list(0, "services", p.Services)
	w.dns(&p.DNS)
	if len(p.Rules) == 0 {
		w.line(0, "rules: []")
		return
	}
	w.line(0, "rules:")
	for i := range p.Rules {
		w.rule(&p.Rules[i], l)
	}
}

func (w *writer) dns(d *policy.DNS) {
	if reflect.ValueOf(*d).IsZero() {
		return
	}
	w.line(0, "dns:")
	w.list(1, "types", d.Types)
	w.list(1, "upstreams", d.Upstreams)
	w.number(1, "queries_per_minute", int64(d.QueriesPerMinute))
}

func (w *writer) rule(r *policy.Rule, l *Learned) {
	for _, text := range l.about[r.ID] {
		w.comment(1, text)
	}
	w.line(1, "- id: "+scalar(r.ID))
	w.text(2, "action", r.Action)
	w.list(2, "hosts", r.Hosts)
	w.list(2, "addresses", r.Addresses)
	w.list(2, "ports", r.Ports)
	w.text(2, "protocol", r.Protocol)
	if len(r.Matches) > 0 {
		w.line(2, "matches:")
	}
	for i := range r.Matches {
		for _, text := range l.within[r.ID+"/"+strconv.Itoa(i)] {
			w.comment(3, text)
		}
		w.match(&r.Matches[i])
	}
	if len(r.Secrets) > 0 {
		w.line(2, "secrets:")
	}
	for _, s := range r.Secrets {
		parts := []string{"name: " + scalar(s.Name)}
		for _, f := range []struct{ name, value string }{
			{"header", s.Header}, {"scheme", s.Scheme}, {"username", s.Username}, {"query", s.Query}, {"body", s.Body},
		} {
			if f.value != "" {
				parts = append(parts, f.name+": "+scalar(f.value))
			}
		}
		if s.Optional {
			parts = append(parts, "optional: true")
		}
		w.line(3, "- {"+strings.Join(parts, ", ")+"}")
	}
	w.text(2, "auth", r.Auth)
	w.text(2, "placeholders", r.Placeholders)
	w.text(2, "roots", r.Roots)
	if r.Limits == (policy.Limits{}) {
		return
	}
	w.line(2, "limits:")
	w.number(3, "request_bytes", r.Limits.RequestBytes)
	w.number(3, "response_bytes", r.Limits.ResponseBytes)
	w.number(3, "requests_per_minute", int64(r.Limits.RequestsPerMinute))
	w.number(3, "bytes", r.Limits.Bytes)
}

func (w *writer) match(m *policy.Match) {
	dash := "- "
	head := func(name string) {
		w.line(3, dash+name+":")
		dash = "  "
	}
	if len(m.Methods) > 0 {
		w.line(3, dash+"methods: ["+flow(m.Methods)+"]")
		dash = "  "
	}
	if len(m.Paths) > 0 {
		head("paths")
		for _, v := range m.Paths {
			w.line(5, "- {"+typed(v.Type)+"value: "+scalar(v.Value)+"}")
		}
	}
	for _, f := range []struct {
		name string
		list []policy.Field
	}{{"headers", m.Headers}, {"query", m.Query}} {
		if len(f.list) == 0 {
			continue
		}
		head(f.name)
		for _, v := range f.list {
			w.line(5, "- {name: "+scalar(v.Name)+", "+typed(v.Type)+"value: "+scalar(v.Value)+"}")
		}
	}
}

func typed(t policy.MatchType) string {
	if t == "" {
		return ""
	}
	return "type: " + scalar(t) + ", "
}

func (w *writer) text(indent int, name, value string) {
	if value != "" {
		w.line(indent, name+": "+scalar(value))
	}
}

func (w *writer) number(indent int, name string, n int64) {
	if n != 0 {
		w.line(indent, name+": "+strconv.FormatInt(n, 10))
	}
}

func (w *writer) list(indent int, name string, values []string) {
	if len(values) > 0 {
		w.line(indent, name+": ["+flow(values)+"]")
	}
}

func flow(values []string) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = scalar(v)
	}
	return strings.Join(out, ", ")
}

var bare = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A[a-zA-Z/][a-zA-Z0-9/._-]*\z`) })

// words mean something else to readers of YAML than their letters.
var words = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"}

// scalar is a text that can be read as nothing but itself.
func scalar(s string) string {
	if bare().MatchString(s) && !slices.Contains(words, strings.ToLower(s)) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r < 0x80 && r >= ' ' && r != 0x7f, r >= 0x80 && unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String() + `"`
}

// leftOut collects what the policy says nothing of, for people: names without a
// connection, what was refused, and rules that let nothing through.
func (l *Learned) leftOut(found []*seen, base []policy.Rule) {
	reached := l.reached()
	asked, refused, unanswered := map[string]int{}, map[string]int{}, map[string]int{}
	used := map[string]bool{}
	hidden := 0
	for i := range l.records {
		r := &l.records[i]
		used[r.Rule] = true
		n := max(r.Count, 1)
		if r.Rule == overRule {
			continue
		}
		switch what := strings.TrimSpace(r.Method+" "+r.Protocol) + " " + policy.Quoted(r.Host); {
		case r.Verdict == deny && r.Host == "" && r.Code == "refusals_not_shown":
			hidden += n
		case r.Verdict == deny && r.Code == noAnswer:
			unanswered[what]++
		case r.Verdict == deny && r.Code != "records_lost":
			if r.Host == "" {
				what = strings.TrimSpace(r.Method+" "+r.Protocol) + " " + r.Address
			}
			refused[what+": "+r.Code] += n
		case r.Protocol == "dns" && !reached[cleaned(r.Host)]:
			asked[policy.Quoted(r.Host)] += n
		}
	}
	l.tell("asked for and never connected to, so left out:", asked)
	l.tell("refused while it was recorded, and refused by this policy; yours to decide:", refused)
	l.tell("let through, and nobody answered, so left out:", unanswered)
	if hidden > 0 {
		l.unsaid = append(l.unsaid, fmt.Sprintf("%d more refusals are not in the record", hidden))
	}
	unused := map[string]int{}
	for _, r := range base {
		if r.Action != policy.ActionDeny && !slices.ContainsFunc(found, func(s *seen) bool { return s.from != nil && s.from.ID == r.ID }) {
			unused[r.ID] = 1
		}
	}
	l.tell("your rules that let nothing through, so left out:", unused)
}

// tell adds a list, the most frequent first, and bounded.
func (l *Learned) tell(head string, counts map[string]int) {
	const most = 50
	if len(counts) == 0 {
		return
	}
	l.unsaid = append(l.unsaid, "", head)
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	for _, name := range names[:min(len(names), most)] {
		line := "  " + name
		if counts[name] > 1 {
			line += fmt.Sprintf(" (%d times)", counts[name])
		}
		l.unsaid = append(l.unsaid, line)
	}
	if n := len(names) - most; n > 0 {
		l.unsaid = append(l.unsaid, fmt.Sprintf("  and %d more", n))
	}
}
