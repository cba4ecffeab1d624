// Package control is the way between the host and a guest agent.
//
// The agent inherits a datagram socket that is bound to a name in a directory
// of the host's. To connect, the host makes a pair of stream sockets and sends
// one of them there. So nothing inside a sandbox listens, nothing inside has a
// name, and a daemon that starts anew finds the agent by the name that the
// last one gave it.
//
// Each message and each connection is proved with a key that was made for this
// start of the sandbox: the agent takes no connection from anybody else, and
// the host speaks to nobody else. The package refuses what is not proved, and
// says nothing about why.
//
// What an agent is told when it starts is a Config, which both ends share. One
// that can't be obeyed is refused.
package control

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
)

// What an agent inherits, by number.
const (
	// ProgramFD is the agent's own program.
	ProgramFD = 3 + iota
	// SocketFD is the socket that Bind made.
	SocketFD
	// ConfigFD is its configuration, which it closes once it has read it.
	ConfigFD
)

// KeySize is the length of a Key in bytes.
const KeySize = 32

// A Key is what host and agent know each other by, made for one start.
type Key [KeySize]byte

// NewKey returns a random key.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never fails: see its documentation
	return k
}

// What the host says, in the first byte of a message.
const (
	connect = 'c' // here is a connection
	wake    = 'w' // a suspended agent is wanted again
)

const (
	nonceSize = 16
	proofSize = sha256.Size
	// messageSize: the kind, a nonce, and the host's proof of both.
	messageSize = 1 + nonceSize + proofSize
)

// errUnproved is all that is said about a peer that is not the one wanted.
var errUnproved = errors.New("the peer is not the one that this start of the sandbox began with")

// message is what the host says, and what it expects in return on the
// connection that it sends along.
func (k Key) message(kind byte) (msg, answer []byte) {
	msg = make([]byte, 1+nonceSize, messageSize)
	msg[0] = kind
	_, _ = rand.Read(msg[1:])
	answer = k.proof("agent", msg)
	return append(msg, k.proof("host", msg)...), answer
}

// read checks a message and returns its kind and the answer to it.
func (k Key) read(msg []byte) (kind byte, answer []byte, err error) {
	if len(msg) != messageSize {
		return 0, nil, errUnproved
	}
	said := msg[:1+nonceSize]
	if !hmac.Equal(msg[len(said):], k.proof("host", said)) {
		return 0, nil, errUnproved
	}
	return said[0], k.proof("agent", said), nil
}

// proof is what only those who have the key can say about a message.
func (k Key) proof(side string, said []byte) []byte {
	mac := hmac.New(sha256.New, k[:])
	mac.Write([]byte(side))
	mac.Write([]byte{0})
	mac.Write(said)
	return mac.Sum(nil)
}
