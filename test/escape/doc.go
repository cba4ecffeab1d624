// Package escape tries to get out. It plants on the host what must not be
// found, starts a box behind each wall, runs the attempts of package probe
// inside as each user that the wall offers, looks from outside at what came of
// them, and wants nothing to be found.
//
// And it tries itself: for each weakness of package weak it does the same with
// a binary that lacks that one part, and wants the attempts to notice. A part
// of a wall that no attempt misses would be one that nothing tests.
//
// It refuses to count an attempt that broke or hung as one that found nothing.
package escape
