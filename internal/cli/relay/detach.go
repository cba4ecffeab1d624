package relay

import (
	"errors"
	"regexp"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// errDetached is the cause of a context that the detach keys ended.
var errDetached = errors.New("detached")

// heldFor is how long Ctrl-P is held back, which may begin the detach keys: long enough for
// most to type both, so that what runs there sees neither, and short enough for those who
// want Ctrl-P itself, as in a shell's history, to wait for. After that it is sent alone.
// A Ctrl-Q that comes next leaves all the same, however late: nobody has to be quick.
const heldFor = 500 * time.Millisecond

// detaching finds the detach keys in what is typed, Ctrl-P and then Ctrl-Q, and holds back
// what may yet become them, or a character.
type detaching struct {
	due   <-chan time.Time // when what is held is to be released; nil: nothing is
	held  []byte
	begun bool // the last key was Ctrl-P, held back or not
}

// take returns what is to be sent, and whether the keys came: what follows them is lost.
func (d *detaching) take(b []byte) (text []byte, detach bool) {
	b = append(d.held, b...)
	from := len(b) // where what is held back begins
	if d.begun {
		from = 0
	}
	for i := 0; i < len(b); {
		k, n := keyAt(b[i:])
		switch {
		case k == keyQuit && d.begun:
			d.held, d.due = nil, nil
			return b[:from], true
		case k == keyBegin:
			from, d.begun = i, true
		case k == keyOther:
			from, d.begun = len(b), false
		}
		i += n
	}
	if !d.begun {
		from -= partial(b)
	}
	d.held, d.due = append([]byte(nil), b[from:]...), nil
	if len(d.held) > 0 {
		d.due = time.After(heldFor)
	}
	return b[:from], false
}

// release returns what was held back for long enough. Ctrl-Q ends it still, if it comes next.
func (d *detaching) release() []byte {
	text := d.held
	d.held, d.due = nil, nil
	return text
}

// partial is how many bytes at the end of b begin a character and do not end it.
func partial(b []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(b); back++ {
		if c := b[len(b)-back]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-back:]) {
				return back
			}
			break
		}
	}
	return 0
}

// key is what a key is for detaching.
type key int

const (
	keyOther key = iota
	keyBegin     // Ctrl-P
	keyQuit      // Ctrl-Q
	keyNone      // no key is pressed: one is let go, or Ctrl itself is pressed
)

const ctrlP, ctrlQ = 'p' & 0x1f, 'q' & 0x1f

// keyForm is a key as terminals tell it where a program asked for more than control
// characters: CSI CODE[:SHIFTED[:BASE]];MODIFIERS[:EVENT][;TEXT] u, as kitty has it, and
// CSI 27;MODIFIERS;CODE ~, as xterm's modifyOtherKeys.
var keyForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\A\x1b\[(?:27;(\d{1,3});(\d{1,7})~|(\d{1,7})(?::\d*)?(?::(\d*))?(?:;(\d{0,3})(?::(\d))?(?:;[\d:]*)?)?u)`)
})

// keyAt returns the key that b begins with, and its length.
func keyAt(b []byte) (key, int) {
	switch b[0] {
	case ctrlP:
		return keyBegin, 1
	case ctrlQ:
		return keyQuit, 1
	case '\x1b':
		if m := keyForm().FindSubmatch(b[:min(len(b), 64)]); m != nil {
			return keyOf(m), len(m[0])
		}
	}
	return keyOther, 1
}

// keyOf reads what keyForm matched.
func keyOf(m [][]byte) key {
	const (
		ctrl               = 4
		locks              = 64 | 128     // Caps Lock and Num Lock, which change nothing
		firstHeld, endHeld = 57441, 57455 // Shift, Ctrl and those that are held like them
		letGo              = "3"
	)
	number := func(b []byte) int {
		n, _ := strconv.Atoi(string(b)) // digits alone, or nothing
		return n
	}
	code, modifiers := number(m[3]), number(m[5])
	if len(m[2]) > 0 {
		code, modifiers = number(m[2]), number(m[1])
	}
	if code >= utf8.RuneSelf && len(m[4]) > 0 && code < firstHeld { // a letter of another script
		code = number(m[4])
	}
	switch {
	case string(m[6]) == letGo, firstHeld <= code && code < endHeld:
		return keyNone
	case (modifiers-1)&^locks != ctrl:
		return keyOther
	case code == 'p':
		return keyBegin
	case code == 'q':
		return keyQuit
	}
	return keyOther
}
