// Package hostkey asks a host by which keys it says that it is known by SSH.
//
// It proves nothing: whoever stands between could answer. It logs in nowhere, and sends nothing
// besides what every client begins with.
package hostkey

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Dial opens connections.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// kinds are what a host may have a key of each of, those that are preferred first.
var kinds = [][]string{
	{ssh.KeyAlgoED25519},
	{ssh.KeyAlgoECDSA256},
	{ssh.KeyAlgoECDSA384},
	{ssh.KeyAlgoECDSA521},
	{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
}

// errSeen ends a conversation of which nothing more is wanted.
var errSeen = errors.New("its key was seen")

// Ask returns the keys of a host, each as a remote's known_host_key has it. It takes as long as ctx lets it.
func Ask(ctx context.Context, dial Dial, host, port string) (lines []string, err error) {
	var failed error
	for _, algorithms := range kinds {
		line, err := one(ctx, dial, net.JoinHostPort(host, port), algorithms)
		switch {
		case line != "":
			lines = append(lines, line)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.As(err, new(*net.OpError)) && len(lines) == 0:
			return nil, fmt.Errorf("%s can't be reached: %w", host, err)
		case failed == nil:
			failed = err
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s has no key that is known here: %w", host, failed)
	}
	return lines, nil
}

// one is the key that a host shows where it is to prove itself by one of those algorithms.
func one(ctx context.Context, dial Dial, address string, algorithms []string) (line string, err error) {
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // it was only asked
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, _, _, err = ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User: "git", HostKeyAlgorithms: algorithms,
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			line = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
			return errSeen
		},
	})
	return line, err
}
