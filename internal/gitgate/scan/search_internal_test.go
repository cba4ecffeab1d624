package scan

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/test/long"
)

// everywhere are the secrets that all rules find in a text that has one of their words,
// each over the whole of it.
func everywhere(r *Rules, text []byte) (found [][2]string) {
	low := bytes.ToLower(text)
	words := map[int]bool{}
	r.words.Walk(low, func(_, _, word int64) bool {
		for _, i := range r.meaning[word] {
			words[i] = true
		}
		return true
	})
	for i, c := range r.rules {
		if !words[i] {
			continue
		}
		s := &search{rules: r, seen: map[string]bool{}}
		s.rule(c, text, span{0, len(text)}, "", func(int) int { return 0 })
		for _, h := range s.hits {
			found = append(found, [2]string{h.Rule, string(h.Secret)})
		}
	}
	return found
}

// TestNothingIsSpared: what is looked at by rules alone where their words stand, and where
// something is assigned, is all that they find anywhere.
func TestNothingIsSpared(t *testing.T) {
	r, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	value := func() string {
		alphabet := one("0123456789abcdef", "abcdefghijklmnopqrstuvwxyz0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", "abcXYZ+/=.")
		b := make([]byte, []int{8, 16, 20, 32, 40, 64, 90}[random.IntN(7)]+random.IntN(2)*random.IntN(9))
		for i := range b {
			b[i] = alphabet[random.IntN(len(alphabet))]
		}
		return string(b)
	}
	names := []string{"key", "API", "auth", "Secret", "token", "passwd", "adobe", "kraken", "dropbox", "twitter", "facebook", "algolia", "asana", "finnhub", "okta", "sentry", "travis", "zendesk", "x"}
	seen := map[string]bool{}
	for range long.Rounds(300, 2000) {
		var text strings.Builder
		for range 1 + random.IntN(6) {
			fmt.Fprint(&text, one("", "my.", "prefix_", "-----", "\t", strings.Repeat("w", 60)), one(names...), one("", "_id", " of  it", "-prod.x", strings.Repeat("n", random.IntN(25))),
				one("", "'", "\"", " ", "\n", "\" ", "'\t "), one("=", ":", ":=", "=>", ">", "||", ",", "?=", "::=", "==", "~", ""), one("", " ", "'", "\"", "`", "= \"", "   "), value(), one("", "'", "\"", ";", "\n", " ", `\n`, "~"), one("", "\n", " and "))
		}
		all := everywhere(r, []byte(text.String()))
		res := r.Search([]byte(text.String()), "")
		for _, f := range all {
			seen[f[0]] = true
			if !slices.ContainsFunc(res.Hits, func(h Hit) bool {
				return strings.Contains(string(h.Secret), f[1]) || strings.Contains(f[1], string(h.Secret))
			}) && !res.More {
				t.Fatalf("%s is spared in %q: %q, found %+v", f[0], text.String(), f[1], res.Hits)
			}
		}
	}
	if len(seen) < long.Rounds(5, 8) {
		t.Errorf("only %d rules found something: %v", len(seen), seen)
	}
}

// TestAssigned: rules that go by an assignment are known as such, by their words or as the
// one for any name.
func TestAssigned(t *testing.T) {
	r, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range r.rules {
		if c.assigns {
			n++
		}
	}
	if n < 40 || n > 150 || len(r.rules) < 200 {
		t.Errorf("%d of %d rules", n, len(r.rules))
	}
}
