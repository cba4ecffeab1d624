package docs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	mark     = "<!-- test -->"
	markRoot = "<!-- test as root -->"
	fence    = "```"
)

// command is one command of a document and what it is to do.
type command struct {
	line int // in the document
	text string
	want []string // lines of output
	exit int
}

var exits = regexp.MustCompile(`\s+# exits (\d+)$`)

// commands returns what a document wants to be run, by root or by others.
func commands(text string, root bool) (cmds []command, err error) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		by := strings.TrimSpace(lines[i])
		if by != mark && by != markRoot {
			continue
		}
		if i+1 >= len(lines) || lines[i+1] != fence+"console" {
			return nil, fmt.Errorf("line %d: the next line is to open a console block", i+1)
		}
		end := i + 2
		for end < len(lines) && lines[end] != fence {
			end++
		}
		if end == len(lines) {
			return nil, fmt.Errorf("line %d: the block does not end", i+2)
		}
		block, err := parseBlock(lines[i+2:end], i+3)
		if err != nil {
			return nil, err
		}
		if by == mark || root {
			cmds = append(cmds, block...)
		}
		i = end
	}
	return cmds, nil
}

func parseBlock(lines []string, first int) (cmds []command, err error) {
	for i, l := range lines {
		if text, ok := strings.CutPrefix(l, "$ "); ok {
			cmds = append(cmds, command{line: first + i, text: text})
			continue
		}
		if len(cmds) == 0 {
			return nil, fmt.Errorf("line %d: output before the first command", first+i)
		}
		c := &cmds[len(cmds)-1]
		if text, ok := strings.CutPrefix(l+" ", "> "); ok && len(c.want) == 0 {
			text = strings.TrimSuffix(text, " ")
			c.text += "\n" + text
			continue
		}
		c.want = append(c.want, l)
	}
	for i := range cmds {
		c := &cmds[i]
		if m := exits.FindStringSubmatch(c.text); m != nil {
			c.text = strings.TrimSuffix(c.text, m[0])
			if c.exit, err = strconv.Atoi(m[1]); err != nil {
				return nil, fmt.Errorf("line %d: %w", c.line, err)
			}
		}
	}
	if len(cmds) == 0 {
		return nil, fmt.Errorf("line %d: a block without a command", first)
	}
	return cmds, nil
}

// pattern matches what want stands for.
func pattern(want []string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`\A`)
	for _, l := range want {
		if l == "..." {
			b.WriteString(`(?:.*\n)*`)
			continue
		}
		for i, part := range strings.Split(l, "...") {
			if i > 0 {
				b.WriteString(`.*`)
			}
			b.WriteString(regexp.QuoteMeta(part))
		}
		b.WriteString(`\n`)
	}
	b.WriteString(`\z`)
	return regexp.MustCompile(b.String())
}

// prints reports whether output is what c is to print. Blank lines at the end
// don't count.
func (c command) prints(output string) bool {
	output = strings.TrimRight(output, "\n")
	if output != "" {
		output += "\n"
	}
	return pattern(c.want).MatchString(output)
}
