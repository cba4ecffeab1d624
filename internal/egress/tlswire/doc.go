// Package tlswire knows as much of TLS as a gate needs before and beside
// crypto/tls: what a connection's first bytes are, what a ClientHello asks
// for, whether a second one asks for the same, and the certificates under
// which a gate answers.
//
// It refuses a hello that two readers could understand differently: several
// names, a name that is no DNS name, an extension sent twice, bytes that
// belong to nothing. It makes certificates for whichever name it is asked for:
// policy is its caller's.
package tlswire
