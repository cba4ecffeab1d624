// Package inject keeps secrets out of sandboxes. The guest holds a placeholder,
// or nothing; a Guard puts the value into a request at the exact place that a
// route names, and nowhere else.
//
// It refuses a placeholder anywhere else, in whatever common spelling: as it
// is, percent-encoded, in base64, in hexadecimal, escaped as in JSON, HTML or
// quoted-printable text, in compressed bodies, split over writes. It refuses
// credentials of the guest's own on routes that have a secret, and the answer
// of a server that repeats a value. Text is searched while it streams: only
// what has begun to look like a match waits for its end.
package inject
