package inject

// minPattern is the length of the shortest text that is searched for. What is
// shorter turns up by chance.
const minPattern = 8

// maxStride bounds how far the search jumps where nothing has begun.
const maxStride = 12

// matcher finds any of several texts in a stream: Aho and Corasick's
// automaton, with a jump over what can't be the beginning of any. Its nodes
// are kept as a tree, since texts may be long and a table would be huge.
type matcher struct {
	nodes  []node
	root   [256]int32
	stride int
	// pairs has a bit for each two bytes that follow one another in the first
	// stride bytes of a text.
	pairs [1 << 13]byte
}

// node is a state: so much of a text has been read.
type node struct {
	first, next int32 // child; sibling
	fail        int32 // the longest other text's beginning that this one ends in
	hold        int32 // how many of the last bytes must not be passed on
	least       int32 // length of the shortest text through here
	depth       int32
	char        byte
	end         bool // a text is complete
	most        bool // more than half of one is
}

// newMatcher makes a matcher for texts, of which those that are shorter than
// minPattern are left out. It returns nil where none is left.
func newMatcher(texts []string) *matcher {
	m := &matcher{nodes: make([]node, 1), stride: maxStride}
	for _, t := range texts {
		if len(t) < minPattern {
			continue
		}
		m.stride = min(m.stride, len(t)-1)
		m.add(t)
	}
	if len(m.nodes) == 1 {
		return nil
	}
	for _, t := range texts {
		if len(t) >= minPattern {
			m.addPairs(t)
		}
	}
	m.link()
	return m
}

func (m *matcher) add(text string) {
	at := int32(0)
	for i := range len(text) {
		c := text[i]
		child := m.child(at, c)
		if child == 0 {
			child = int32(len(m.nodes))
			m.nodes = append(m.nodes, node{char: c, next: m.nodes[at].first, depth: int32(i + 1), least: int32(len(text))})
			m.nodes[at].first = child
			if at == 0 {
				m.root[c] = child
			}
		}
		m.nodes[child].least = min(m.nodes[child].least, int32(len(text)))
		at = child
	}
	m.nodes[at].end = true
}

func (m *matcher) addPairs(text string) {
	for i := range m.stride {
		m.pairs[uint16(text[i])<<5|uint16(text[i+1])>>3] |= 1 << (text[i+1] & 7)
	}
}

func (m *matcher) child(at int32, c byte) int32 {
	for k := m.nodes[at].first; k != 0; k = m.nodes[k].next {
		if m.nodes[k].char == c {
			return k
		}
	}
	return 0
}

// link fills in fail, hold and end, the shallow nodes first.
func (m *matcher) link() {
	queue := make([]int32, 1, len(m.nodes))
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		for k := m.nodes[at].first; k != 0; k = m.nodes[k].next {
			queue = append(queue, k)
			n := &m.nodes[k]
			if at != 0 {
				n.fail = m.step(m.nodes[at].fail, n.char)
			}
			n.end = n.end || m.nodes[n.fail].end
			n.hold = m.nodes[n.fail].hold
			n.most = m.nodes[n.fail].most || 2*n.depth > n.least
			// A quarter may pass: without it a stream that happens to end in a
			// text's first byte would be stuck until more of it comes.
			if 4*n.depth > n.least {
				n.hold = n.depth
			}
		}
	}
}

// step returns the state after c in state s.
func (m *matcher) step(s int32, c byte) int32 {
	for s != 0 {
		for k := m.nodes[s].first; k != 0; k = m.nodes[k].next {
			if m.nodes[k].char == c {
				return k
			}
		}
		s = m.nodes[s].fail
	}
	return m.root[c]
}

// scan reads b in state s. It returns the state after it and false, or true
// where a text was complete.
func (m *matcher) scan(s int32, b []byte) (int32, bool) {
	for i := 0; i < len(b); i++ {
		if s == 0 {
			if i = m.skip(b, i); i >= len(b) {
				return 0, false
			}
			s = m.root[b[i]]
			continue
		}
		s = m.step(s, b[i])
		if m.nodes[s].end {
			return s, true
		}
	}
	return s, false
}

// skip returns the next place from i on where a text may begin. One that
// begins among the next stride bytes has the two that are looked at in pairs.
func (m *matcher) skip(b []byte, i int) int {
	stride := m.stride
	for p := i + stride - 1; p+1 < len(b); p = i + stride - 1 {
		if m.pairs[uint16(b[p])<<5|uint16(b[p+1])>>3]&(1<<(b[p+1]&7)) == 0 {
			i = p + 1
			continue
		}
		if m.root[b[i]] != 0 {
			return i
		}
		i++
	}
	for i < len(b) && m.root[b[i]] == 0 {
		i++
	}
	return i
}
