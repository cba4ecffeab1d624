package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

// placeInBody reads the body, finds the secrets' places in it and searches
// what is around them.
func (rw *rewrite) placeInBody(places []int) (*body, []put, *Refusal) {
	b, why := rw.take()
	if why != nil {
		return nil, nil, why
	}
	var puts []put
	for _, i := range places {
		s := rw.secrets[i]
		var spots []spot
		if strings.HasPrefix(s.Body, "/") {
			var err error
			if spots, err = findJSON(b.whole, s.Body); err != nil {
				return nil, nil, &Refusal{
					Code: "bad_request", Status: http.StatusBadRequest,
					Reason: "the body is not the JSON that it says it is",
				}
			}
		} else {
			spots = findForm(b.whole, s.Body)
		}
		if len(spots) == 0 {
			continue
		}
		want := rw.x.state.placeholders[s.Name]
		switch {
		case len(spots) == 1 && want != "" && spots[0].value == want:
			puts = append(puts, put{secret: s, start: spots[0].start, end: spots[0].end})
		case slices.ContainsFunc(spots, func(f spot) bool { return rw.hasPlaceholder(f.value) }):
			return nil, nil, misplaced("the body's field " + s.Body + ", and not alone")
		case !rw.guest:
			return nil, nil, foreign("the body's field " + s.Body)
		}
	}
	if why := rw.searchAround(b.whole, puts); why != nil {
		return nil, nil, why
	}
	return b, puts, nil
}

// searchAround refuses placeholders in the body beside the places of puts.
func (rw *rewrite) searchAround(whole []byte, puts []put) *Refusal {
	sorted := slices.SortedFunc(slices.Values(puts), func(a, b put) int { return a.start - b.start })
	at := 0
	for _, u := range append(sorted, put{start: len(whole), end: len(whole)}) {
		if u.start < at { // two rules for one place
			return misplaced("a field of the body that two rules name")
		}
		if searchWhole(rw.bodyScanner(), whole[at:u.start]) == found {
			return inBody("the body")
		}
		at = u.end
	}
	return nil
}

// spot is a field of a body: where its value is, and what it is.
type spot struct {
	start, end int
	value      string // decoded; "" for a JSON value that is no string
}

// findForm finds the fields in a form that some server may take for the one
// called name. Those that are spelled otherwise are no place for a secret.
func findForm(text []byte, name string) (spots []spot) {
	alike := folded(name)
	for at := 0; at <= len(text); {
		end := at + bytes.IndexByte(append(text[at:len(text):len(text)], '&'), '&')
		rawName, rawValue, _ := strings.Cut(string(text[at:end]), "=")
		switch {
		case unescapeQuery(rawName) == name:
			spots = append(spots, spot{end - len(rawValue), end, unescapeQuery(rawValue)})
		case slices.ContainsFunc(parameterNames(text[at:end]), func(n string) bool { return field.Is(n, alike) }):
			spots = append(spots, spot{end, end, ""})
		}
		at = end + 1
	}
	return spots
}

func parameterNames(text []byte) (names []string) {
	for name := range field.Parameters(string(text)) {
		names = append(names, name)
	}
	return names
}

var errNotJSON = errors.New("not one JSON value")

// findJSON finds what pointer, a JSON pointer, leads to: more than one spot
// where names are given twice, which readers take differently. Names that
// differ in case alone count as the same, since to some readers they are.
func findJSON(text []byte, pointer string) ([]spot, error) {
	f := &finder{text: text, dec: json.NewDecoder(bytes.NewReader(text))}
	f.dec.UseNumber()
	for part := range strings.SplitSeq(pointer[1:], "/") {
		f.path = append(f.path, strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~"))
	}
	if err := f.value(0, true); err != nil {
		return nil, err
	}
	if _, err := f.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errNotJSON
	}
	return f.spots, nil
}

// maxNesting is how deep JSON may go.
const maxNesting = 1000

type finder struct {
	text  []byte
	dec   *json.Decoder
	path  []string
	spots []spot
}

// value reads one value, depth levels down; on says that the way to it is the
// beginning of the path, or all of it.
func (f *finder) value(depth int, on bool) error {
	if depth > maxNesting {
		return errNotJSON
	}
	here := on && depth == len(f.path)
	before := int(f.dec.InputOffset())
	tok, err := f.dec.Token()
	if err != nil {
		return err
	}
	if d, ok := tok.(json.Delim); ok {
		if err := f.inside(d, depth, on); err != nil {
			return err
		}
	}
	if here {
		end := int(f.dec.InputOffset())
		s, _ := tok.(string)
		start := before + len(f.text[before:end]) - len(bytes.TrimLeft(f.text[before:end], " \t\r\n,:"))
		f.spots = append(f.spots, spot{start, end, s})
	}
	return nil
}

// inside reads what an object or a list holds, and its end.
func (f *finder) inside(d json.Delim, depth int, on bool) error {
	for i := 0; f.dec.More(); i++ {
		name := ""
		if d == '{' {
			tok, err := f.dec.Token()
			if err != nil {
				return err
			}
			name, _ = tok.(string)
		}
		if err := f.value(depth+1, on && depth < len(f.path) && f.leads(d, name, i, f.path[depth])); err != nil {
			return err
		}
	}
	_, err := f.dec.Token()
	return err
}

func (f *finder) leads(d json.Delim, name string, i int, part string) bool {
	if d == '{' {
		return strings.EqualFold(name, part)
	}
	return strconv.Itoa(i) == part
}

// jsonText writes v as a JSON string.
func jsonText(v string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return `""` // a string always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}
