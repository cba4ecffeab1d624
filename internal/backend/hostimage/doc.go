// Package hostimage makes the "host" image: this machine's own programs under
// a root directory that holds none of its owner's files.
//
// The image is a skeleton, which this package builds, and parts: directories
// of the host, /usr first of all, which the wall lays over the skeleton
// read-only or copy-on-write. Of /etc the skeleton has what one table allows
// by name, each entry with its reason; accounts, name service and shell
// set-up are written anew. Nothing of /etc is ever mounted.
//
// What is copied must be a regular file that every user of the host may read,
// of bounded size, reached without following a link, and without a private
// key in it. A link is copied as a link, and only if it leads to something
// that is in the image. All else is left out, and the notes say so.
//
// A skeleton is found again by what it was made from: the names, sizes and
// times of its sources, so that finding it costs a few hundred stats and no
// read. It lives as long as the boot that it was made in. That makes it safe
// to delete those of earlier boots, which no running instance can be using, and
// not to sync one to disk: nothing of it is trusted after a crash.
//
// /usr is taken as it is. What an administrator put there for all users of
// the machine to read, every instance can read; Audit lists what looks as if it
// was not meant for them.
package hostimage
