// Package wire is what sudo and the guest agent say to each other, in as little
// code as the small program can do with: one Request, with the standard files
// handed over beside its first byte; then a byte for each signal; then one End,
// after which the agent closes. Strings are as execve(2) takes them, ended by a
// zero byte, so that none needs escaping.
package wire

import (
	"strconv"
	"strings"
)

// Address is the agent's abstract socket: it has no name in any file system,
// and is the agent's before any command runs.
const Address = "@carboy/sudo"

// MaxRequest bounds a Request in bytes: no longer one could be executed.
const MaxRequest = 4 << 20

// Request is what one call of sudo asks for.
type Request struct {
	Dir  string   // where it was called
	Args []string // what followed the name sudo
	Env  []string // NAME=VALUE
}

// Encode returns the message: its length and a line feed, then the parts.
func (r Request) Encode() []byte {
	parts := append([]string{r.Dir, strconv.Itoa(len(r.Args))}, r.Args...)
	body := strings.Join(append(parts, r.Env...), "\x00")
	return []byte(strconv.Itoa(len(body)) + "\n" + body)
}

// ParseRequest reads the parts that follow the length.
func ParseRequest(body string) (r Request, ok bool) {
	parts := strings.Split(body, "\x00")
	if len(parts) < 2 {
		return r, false
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil || n < 0 || n > len(parts)-2 || parts[1] != strconv.Itoa(n) {
		return r, false
	}
	return Request{Dir: parts[0], Args: parts[2 : 2+n], Env: parts[2+n:]}, true
}

// End is how a call ended.
type End struct {
	Code  int // 0 to 255
	Shown bool
	// Text is to be printed: to standard output where Shown, else to standard
	// error.
	Text string
}

// Encode returns the message.
func (e End) Encode() []byte {
	return []byte(strconv.Itoa(e.Code) + " " + strconv.FormatBool(e.Shown) + "\n" + e.Text)
}

// ParseEnd reads a whole message.
func ParseEnd(msg []byte) (e End, ok bool) {
	head, text, found := strings.Cut(string(msg), "\n")
	code, shown, split := strings.Cut(head, " ")
	n, err := strconv.Atoi(code)
	if !found || !split || err != nil || n < 0 || n > 255 || shown != "true" && shown != "false" {
		return e, false
	}
	return End{Code: n, Shown: shown == "true", Text: text}, true
}
