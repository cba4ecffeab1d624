// Package jupyter has the messages that Jupyter's kernels speak, version 5.3:
// how they are signed and taken apart, and where kernels are described.
//
// It refuses what is not signed with the kernel's key.
package jupyter

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	delimiter = "<IDS|MSG>"
	version   = "5.3"
	username  = "carboy"
)

// Header says what a message is, and which one it answers.
type Header struct {
	ID       string `json:"msg_id"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"`
	Type     string `json:"msg_type"`
	Version  string `json:"version"`
}

// Message is one message from a kernel.
type Message struct {
	Header  Header
	Parent  Header // zero where it answers nothing
	Content json.RawMessage
}

// Session makes and reads the messages of one kernel.
type Session struct {
	key []byte
	id  string
}

// NewSession returns a session whose messages are signed with key.
func NewSession(key string) *Session { return &Session{key: []byte(key), id: NewID()} }

// NewID returns a random UUID.
func NewID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Encode returns a message's parts and its ID. content must have a form in JSON.
func (s *Session) Encode(kind string, content any) (parts [][]byte, id string, err error) {
	id = NewID()
	header, err := json.Marshal(Header{
		ID: id, Session: s.id, Username: username, Type: kind, Version: version,
		Date: time.Now().UTC().Format(time.RFC3339Nano),
	})
	if err != nil {
		return nil, "", err
	}
	body, err := json.Marshal(content)
	if err != nil {
		return nil, "", fmt.Errorf("encode %s: %w", kind, err)
	}
	signed := [][]byte{header, []byte("{}"), []byte("{}"), body}
	return append([][]byte{[]byte(delimiter), []byte(s.sign(signed))}, signed...), id, nil
}

func (s *Session) sign(parts [][]byte) string {
	m := hmac.New(sha256.New, s.key)
	for _, p := range parts {
		m.Write(p)
	}
	return hex.EncodeToString(m.Sum(nil))
}

// Decode reads a message as it came from a socket.
func (s *Session) Decode(parts [][]byte) (Message, error) {
	i := 0
	for i < len(parts) && !bytes.Equal(parts[i], []byte(delimiter)) {
		i++
	}
	if len(parts) < i+6 {
		return Message{}, errors.New("message without its parts")
	}
	signature, signed := parts[i+1], parts[i+2:i+6]
	if !hmac.Equal(signature, []byte(s.sign(signed))) {
		return Message{}, errors.New("message with a wrong signature")
	}
	m := Message{Content: signed[3]}
	if err := json.Unmarshal(signed[0], &m.Header); err != nil {
		return Message{}, fmt.Errorf("message's header: %w", err)
	}
	if err := json.Unmarshal(signed[1], &m.Parent); err != nil {
		return Message{}, fmt.Errorf("message's parent: %w", err)
	}
	return m, nil
}

// ParentOf returns which message one answers that came without its end: what
// is before its content is not checked.
func ParentOf(parts [][]byte) string {
	for i, p := range parts {
		if bytes.Equal(p, []byte(delimiter)) && len(parts) > i+3 {
			var h Header
			_ = json.Unmarshal(parts[i+3], &h)
			return h.ID
		}
	}
	return ""
}
