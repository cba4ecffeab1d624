// Package scan searches what an agent wrote for secrets, by the rules of gitleaks.
//
// The rules are data, as gitleaks publishes them; what reads them is ours. Besides what
// stands there as it is, it finds what is in UTF-16, base64, hexadecimal, escapes, gzip,
// zlib, bzip2, zstd and zip, and one in another, up to a depth and a sum of bytes.
//
// Whoever wrote it is hostile: no comment and no name of a file excuses a finding, but for
// the one rule that goes by what stands around a value, whose exceptions for lock files
// and the like it has. What is compressed or encrypted otherwise, and what expands to more
// than may be looked at, it says it can't see into.
package scan

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	ahocorasick "github.com/BobuSumisu/aho-corasick"
	"github.com/pelletier/go-toml/v2"
)

//go:embed rules/rules.toml
var rulesText []byte

//go:embed own.toml
var ownText []byte

// generic is the rule that goes by what stands around a value.
const generic = "generic-api-key"

// whole is the group of a rule whose secret is all that it matches.
const whole = -1

// Rules are what is searched for. They may be used by several goroutines.
type Rules struct {
	rules    []*rule
	words    *ahocorasick.Trie
	meaning  [][]int   // rules by word
	excused  allowlist // of the generic rule alone
	bareword []int     // rules that no word is needed for
	known    []Known
}

// rule is one of gitleaks'.
type rule struct {
	id, why string
	regex   *regexp.Regexp // nil: it is about names of files alone
	path    *regexp.Regexp // of the files that it is about; nil: of all
	entropy float64
	group   int // of regex, which is the secret; 0: the first that is there, or all where they have names
	excuses []allowlist
	reach   int  // bytes before and after a word that a match may have
	assigns bool // a match has something assigned to what the word is the end of
}

// allowlist excuses what seems to be a secret.
type allowlist struct {
	all       bool // all of what it names has to be so, and not one of it
	target    string
	regexes   []*regexp.Regexp
	paths     []*regexp.Regexp
	stopwords []string
}

// file is gitleaks' format.
type file struct {
	Title      string      `toml:"title"`
	MinVersion string      `toml:"minVersion"`
	Allowlist  fileAllowed `toml:"allowlist"`
	Rules      []struct {
		ID          string        `toml:"id"`
		Description string        `toml:"description"`
		Regex       string        `toml:"regex"`
		Path        string        `toml:"path"`
		Entropy     float64       `toml:"entropy"`
		SecretGroup int           `toml:"secretGroup"`
		Keywords    []string      `toml:"keywords"`
		Allowlists  []fileAllowed `toml:"allowlists"`
	} `toml:"rules"`
}

type fileAllowed struct {
	Description string   `toml:"description"`
	Condition   string   `toml:"condition"`
	RegexTarget string   `toml:"regexTarget"`
	Regexes     []string `toml:"regexes"`
	Paths       []string `toml:"paths"`
	Stopwords   []string `toml:"stopwords"`
}

var load = sync.OnceValues(func() (*Rules, error) { return parse(slices.Concat(rulesText, ownText)) })

// Load returns the rules. They are read once.
func Load() (*Rules, error) { return load() }

// parse reads rules in gitleaks' format.
func parse(text []byte) (*Rules, error) {
	var f file
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&f); err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	r := &Rules{}
	var err error
	for i, text := range f.Allowlist.Regexes { // one is anchored in parts only
		f.Allowlist.Regexes[i] = "^(?:" + text + ")$"
	}
	if r.excused, err = f.Allowlist.compile(); err != nil {
		return nil, err
	}
	index := map[string]int{}
	var words []string
	for i, fr := range f.Rules {
		c := &rule{id: fr.ID, why: fr.Description, entropy: fr.Entropy, group: fr.SecretGroup}
		if c.regex, c.reach, err = compile(fr.Regex); err != nil {
			return nil, fmt.Errorf("rule %s: %w", fr.ID, err)
		}
		if c.path, _, err = compile(fr.Path); err != nil {
			return nil, fmt.Errorf("rule %s: %w", fr.ID, err)
		}
		for _, a := range fr.Allowlists {
			l, err := a.compile()
			if err != nil {
				return nil, fmt.Errorf("rule %s: %w", fr.ID, err)
			}
			c.excuses = append(c.excuses, l)
		}
		if c.regex != nil && strings.Join(c.regex.SubexpNames(), "") != "" {
			c.group = whole
		}
		c.assigns = fr.ID == generic || !slices.ContainsFunc(fr.Keywords, func(w string) bool {
			return !strings.Contains(strings.ToLower(fr.Regex), "(?:"+regexp.QuoteMeta(strings.ToLower(w))+")"+assigned)
		})
		r.rules = append(r.rules, c)
		if len(fr.Keywords) == 0 && c.regex != nil {
			r.bareword = append(r.bareword, i)
		}
		for _, w := range fr.Keywords {
			w = strings.ToLower(w)
			at, ok := index[w]
			if !ok {
				at = len(words)
				index[w] = at
				words = append(words, w)
				r.meaning = append(r.meaning, nil)
			}
			r.meaning[at] = append(r.meaning[at], i)
		}
	}
	r.words = ahocorasick.NewTrieBuilder().AddStrings(words).Build()
	return r, nil
}

// assigned is how gitleaks writes that something is assigned, in lower case.
const assigned = `(?:[ \t\w.-]{0,20})[\s'"]{0,3}(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)`

const (
	farReach = 8 << 10 // of a regular expression that has no bound
	maxReach = 16 << 10
)

// compile reads a regular expression, and says how long what it matches may be.
func compile(text string) (*regexp.Regexp, int, error) {
	if text == "" {
		return nil, 0, nil
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, 0, err
	}
	re, err := regexp.Compile(text)
	reach := longest(tree)
	if reach < 0 {
		reach = farReach
	}
	return re, min(reach, maxReach), err
}

// longest is how many bytes an expression matches at most; -1: there is no bound.
func longest(re *syntax.Regexp) int {
	sum := func(times int, subs ...*syntax.Regexp) int {
		n := 0
		for _, s := range subs {
			l := longest(s)
			if l < 0 || times < 0 {
				return -1
			}
			n += l * times
		}
		return n
	}
	switch re.Op {
	case syntax.OpLiteral:
		return 4 * len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 4
	case syntax.OpCapture, syntax.OpQuest, syntax.OpConcat:
		return sum(1, re.Sub...)
	case syntax.OpStar, syntax.OpPlus:
		return -1
	case syntax.OpRepeat:
		return sum(re.Max, re.Sub...)
	case syntax.OpAlternate:
		most := 0
		for _, s := range re.Sub {
			l := longest(s)
			if l < 0 {
				return -1
			}
			most = max(most, l)
		}
		return most
	}
	return 0
}

func (a fileAllowed) compile() (l allowlist, err error) {
	l = allowlist{all: strings.EqualFold(a.Condition, "and"), target: a.RegexTarget, stopwords: a.Stopwords}
	for _, texts := range []struct {
		from []string
		to   *[]*regexp.Regexp
	}{{a.Regexes, &l.regexes}, {a.Paths, &l.paths}} {
		for _, text := range texts.from {
			re, err := regexp.Compile(text)
			if err != nil {
				return l, err
			}
			*texts.to = append(*texts.to, re)
		}
	}
	return l, nil
}

// found is a match of a rule, before anything excuses it.
type found struct {
	secret, match, line string
	path                string
}

// excuses reports whether what was found is none. Names of files count where paths does.
func (a allowlist) excuses(f found, paths bool) bool {
	target := f.secret
	switch a.target {
	case "match":
		target = f.match
	case "line":
		target = f.line
	}
	var is []bool
	if len(a.regexes) > 0 {
		is = append(is, slices.ContainsFunc(a.regexes, func(re *regexp.Regexp) bool { return re.MatchString(target) }))
	}
	if len(a.stopwords) > 0 {
		low := strings.ToLower(f.secret)
		is = append(is, slices.ContainsFunc(a.stopwords, func(w string) bool { return strings.Contains(low, strings.ToLower(w)) }))
	}
	if len(a.paths) > 0 {
		is = append(is, paths && slices.ContainsFunc(a.paths, func(re *regexp.Regexp) bool { return re.MatchString(f.path) }))
	}
	if a.all {
		return len(is) > 0 && !slices.Contains(is, false)
	}
	return slices.Contains(is, true)
}

// entropy is Shannon's, in bits for each character.
func entropy(s string) (e float64) {
	counts := map[rune]int{}
	for _, r := range s {
		counts[r]++
	}
	for _, n := range counts {
		p := float64(n) / float64(len(s))
		e -= p * math.Log2(p)
	}
	return e
}
