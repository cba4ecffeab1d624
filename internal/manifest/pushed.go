package manifest

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// says are the rules for what may be pushed, in words, with what is so without being said.
func (q *Push) says() string {
	if q.ReadOnly {
		return "takes no push"
	}
	words := []string{}
	for _, rule := range [][3]string{
		{"secrets", q.Secrets, "deny"},
		{"held files", q.Held, "ask"},
		{"what can't be looked into", q.Unscannable, "ask"},
		{"binaries", q.Binaries, "allow"},
		{"deletions", q.Deletions, "deny"},
		{"forced", q.Forced, "deny"},
	} {
		words = append(words, cmp.Or(rule[1], rule[2])+" "+rule[0])
	}
	if len(q.Protected) > 0 {
		words = append(words, "deny all changes of "+strings.Join(q.Protected, ", "))
	}
	for _, most := range []struct {
		what  string
		bytes size
	}{{"a file", q.MaxBlob}, {"a push", q.MaxPush}} {
		if most.bytes > 0 {
			words = append(words, most.what+" of "+term.FormatSize(int64(most.bytes))+" at most")
		}
	}
	if q.MaxCommits > 0 {
		words = append(words, fmt.Sprintf("%d commits at most", q.MaxCommits))
	}
	if q.MaxRefs > 0 {
		words = append(words, fmt.Sprintf("%d refs at most", q.MaxRefs))
	}
	return "takes pushes: " + strings.Join(words, ", ")
}
