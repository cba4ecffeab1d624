package files

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// Metadata are extended attributes under a prefix of their own, so that they
// meet no other tool's. The limits are what ext4 has room for in one inode.
const (
	metadataPrefix = "user.e2b."
	metadataHeader = "X-Metadata-"
	maxMetadataKey = 255 - len(metadataPrefix)
	maxMetadata    = 4096 // bytes of all keys, with the prefix, and values of a file
)

// metadataFrom returns the metadata that the headers of an upload ask for.
// The first value of a header counts.
func metadataFrom(h http.Header) (map[string]string, error) {
	md := make(map[string]string)
	total := 0
	for name, values := range h {
		key, ok := strings.CutPrefix(name, metadataHeader)
		if !ok || len(values) == 0 {
			continue
		}
		key = strings.ToLower(key)
		switch {
		case key == "":
			return nil, faultf(connect.CodeInvalidArgument, "metadata: a key is empty")
		case len(key) > maxMetadataKey:
			return nil, faultf(connect.CodeInvalidArgument, "metadata: key %.32q… is longer than %d bytes", key, maxMetadataKey)
		case !printable(key) || !printable(values[0]):
			return nil, faultf(connect.CodeInvalidArgument, "metadata: key or value of %q is not printable ASCII", key)
		}
		total += len(metadataPrefix) + len(key) + len(values[0])
		md[key] = values[0]
	}
	if total > maxMetadata {
		return nil, faultf(connect.CodeInvalidArgument, "metadata: %d bytes are more than %d", total, maxMetadata)
	}
	return md, nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// readMetadata returns the metadata of the file at p, nil for none. It runs on
// a worker. A guest may set attributes of its own: what is not UTF-8, or is
// beyond the limit of an upload, is left out.
func readMetadata(p string) map[string]string {
	return collectMetadata(
		func(b []byte) (int, error) { return unix.Listxattr(p, b) },
		func(name string, b []byte) (int, error) { return unix.Getxattr(p, name, b) })
}

func readMetadataFrom(fd int) map[string]string {
	return collectMetadata(
		func(b []byte) (int, error) { return unix.Flistxattr(fd, b) },
		func(name string, b []byte) (int, error) { return unix.Fgetxattr(fd, name, b) })
}

func collectMetadata(list func([]byte) (int, error), get func(string, []byte) (int, error)) map[string]string {
	names, err := metadataNames(list)
	if err != nil || len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	md := make(map[string]string)
	value, room := make([]byte, maxMetadata), maxMetadata
	for _, name := range names {
		n, err := get(name, value)
		key := name[len(metadataPrefix):]
		if err != nil || n+len(name) > room || !utf8.ValidString(key) || !utf8.Valid(value[:n]) {
			continue
		}
		room -= n + len(name)
		md[key] = string(value[:n])
	}
	if len(md) == 0 {
		return nil
	}
	return md
}

// metadataNames returns the full names of a file's metadata. Most files have
// no attribute at all, so the size is asked for first.
func metadataNames(list func([]byte) (int, error)) ([]string, error) {
	n, err := list(nil)
	if err != nil || n == 0 {
		return nil, err
	}
	b := make([]byte, n)
	if n, err = list(b); err != nil {
		return nil, err
	}
	var names []string
	for name := range bytes.SplitSeq(b[:n], []byte{0}) {
		if bytes.HasPrefix(name, []byte(metadataPrefix)) {
			names = append(names, string(name))
		}
	}
	return names, nil
}

// writeMetadata makes md the whole metadata of an open file. It runs on a
// worker.
func writeMetadata(fd int, md map[string]string) error {
	old, err := metadataNames(func(b []byte) (int, error) { return unix.Flistxattr(fd, b) })
	if err != nil && (len(md) > 0 || !errors.Is(err, unix.EOPNOTSUPP)) {
		return fmt.Errorf("list metadata: %w", err)
	}
	for _, name := range old {
		if _, keep := md[name[len(metadataPrefix):]]; keep {
			continue
		}
		if err := unix.Fremovexattr(fd, name); err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("remove metadata: %w", err)
		}
	}
	for key, value := range md {
		if err := unix.Fsetxattr(fd, metadataPrefix+key, []byte(value), 0); err != nil {
			return fmt.Errorf("set metadata %q: %w", key, err)
		}
	}
	return nil
}
