// Package profile turns what a caller asked of a session into what it gets.
//
// It reads a request as leniently as LangBot's Box does ("999" and 999.0 are
// 999) and says what it did not know; it fills in, locks and clamps by a
// profile, and reports each change; it holds the rules by which a request fits
// a session that is there, by which output is cut, and by which a directory of
// the host may be named. It has the classes of errors that all wires share.
//
// It refuses what could not be honoured: values out of their range, places that
// are not absolute, text that is none. All but Roots is pure: it reads and
// writes nothing.
package profile
