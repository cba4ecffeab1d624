package scrub

import (
	"context"
	"os"
)

// Parts of an image that a scrub overwrites, by name.
var Parts = map[string]uint{
	"free": uint(partFree), "inodes": uint(partInodes), "journal": uint(partJournal), "tails": uint(partTails),
	"nodes": uint(partNodes), "directories": uint(partDirectories), "attributes": uint(partAttributes), "tables": uint(partTables),
}

// Keeping is o with parts left as they are.
func Keeping(o Options, parts ...string) Options {
	for _, p := range parts {
		o.keep |= part(Parts[p])
	}
	return o
}

// WorkName is the name of a copy.
var WorkName = workName

// OnCopy empties /run of the image in f and erases what was there, without e2fsck.
func OnCopy(ctx context.Context, f *os.File) error {
	fs, err := openFileSystem(f)
	if err != nil {
		return err
	}
	if _, err := fs.empty(ctx, RunPath, false); err != nil {
		return err
	}
	return fs.erase(ctx, 0, func(uint64, uint64) {})
}
