// Package near finds the word that a mistyped one was meant to be. It guesses from
// the letters alone.
package near

import "strings"

// short is the length of the longest word of which two letters make another one.
const short = 4

// Of returns the one of names that is a typing error away, or two where name is longer
// than four letters, or ""; a beginning of two letters will do as well. cobra's
// suggestions are for commands alone, in no order of nearness, and take as long
// as the words are.
func Of(name string, names []string) string {
	best, dist := "", 3
	if len(name) <= short {
		dist = 2
	}
	for _, n := range names {
		d := editDistance(name, n)
		if strings.HasPrefix(n, name) && len(name) > 1 {
			d = min(d, 1)
		}
		if d < dist && d < len(n) {
			best, dist = n, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, replacements and swaps of
// neighbours, on strings cut to a length at which it can't be slow.
func editDistance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
