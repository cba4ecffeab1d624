// Package guest is the agent: the first process of a sandbox. It runs the
// commands and serves the files that the host asks for, over HTTP on one unix
// socket: envd's services, so that E2B's SDKs work, and what they lack. A CONNECT
// joins a connection to a port inside, or to the actions of package action.
//
// It trusts every caller that reaches the socket, which is hidden from commands, and
// knows no keys or tokens. It sets no clock and mounts no volume, and the one
// certificate that it installs is that of the sandbox's gate, from its
// configuration: envd's ways to ask for those are answered and ignored.
package guest
