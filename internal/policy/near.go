package policy

import "strings"

// didYouMean names the preset that a word is a typing error away from, as the
// beginning of a hint; "" where there is none.
func didYouMean(word string) string {
	word = strings.ToLower(word)
	for _, p := range Presets() {
		if slip(word, p.Name) {
			return "did you mean --allow " + p.Name + "? "
		}
	}
	return ""
}

// presetHint says that a word is a preset, or nearly one, as the beginning of a hint;
// "" where it is neither.
func presetHint(word string) string {
	for _, p := range Presets() {
		if p.Name == word {
			return word + " is a preset, whose hosts carboy policy presets lists: "
		}
	}
	return didYouMean(word)
}

// slip reports whether a is b with one letter left out, added, replaced, or two
// neighbours swapped.
func slip(a, b string) bool {
	if a == b || len(b) < 3 {
		return false
	}
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	ra, rb := a[i:], b[i:]
	switch len(a) - len(b) {
	case -1:
		return ra == rb[1:]
	case 1:
		return ra[1:] == rb
	case 0:
		return ra[1:] == rb[1:] || len(ra) > 1 && ra[0] == rb[1] && ra[1] == rb[0] && ra[2:] == rb[2:]
	}
	return false
}
