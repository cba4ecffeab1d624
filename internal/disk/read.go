package disk

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/disk/ext4"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// MaxRead is the most that Read reads, in bytes. OpenFile has no bound.
const MaxRead = 16 << 20

// Read reads the beginning of a file in the image of a file: at most so many bytes, 1 to MaxRead.
//
// Content is text where what is read of it is UTF-8, and base64 otherwise, which the reply says.
// A character that the bound cuts is left out, so that a text stays one. Errors, beside those of
// Walk: "max_bytes must be positive", "workspace disk read only supports regular files", and
// "failed to dump workspace disk file", with the inode.
func Read(ctx context.Context, image, path string, maxBytes int64) (*action.ReadFileReply, error) {
	if err := checkMax(maxBytes); err != nil {
		return nil, err
	}
	im, err := Open(image)
	if err != nil {
		return nil, err
	}
	defer im.Close()
	return im.Read(ctx, path, maxBytes)
}

func checkMax(maxBytes int64) error {
	switch {
	case maxBytes <= 0:
		return sandbox.Errorf(sandbox.Invalid, "max_bytes must be positive, not %d", maxBytes)
	case maxBytes > MaxRead:
		return sandbox.Errorf(sandbox.Invalid, "max_bytes must be at most %d, not %d", int64(MaxRead), maxBytes).WithHint("export the image for more")
	}
	return nil
}

// Read is the function Read, for an image that is open.
func (im *Image) Read(ctx context.Context, path string, maxBytes int64) (*action.ReadFileReply, error) {
	if err := checkMax(maxBytes); err != nil {
		return nil, err
	}
	f, path, err := im.openFile(path)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// A few bytes more tell whether the bound cuts a character.
	data := make([]byte, min(maxBytes+utf8.UTFMax-1, f.Size()))
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, dumpError(path, err)
	}
	r := &action.ReadFileReply{Path: path, SizeBytes: f.Size(), MaxBytes: maxBytes, Truncated: f.Size() > maxBytes}
	r.Content, r.Encoding = Content(data, int(min(maxBytes, int64(len(data)))))
	return r, nil
}

// Content is the first bytes of data as a reply has them, and how: text without a character that
// is cut, or base64.
func Content(data []byte, bytes int) (content, encoding string) {
	whole := bytes
	for whole > 0 && whole < len(data) && bytes-whole < utf8.UTFMax && !utf8.RuneStart(data[whole]) {
		whole--
	}
	if _, size := utf8.DecodeRune(data[whole:]); whole < bytes && (size == 1 || whole+size <= bytes) {
		whole = bytes // what is cut there is no character
	}
	if utf8.Valid(data[:whole]) {
		return string(data[:whole]), ""
	}
	return base64.StdEncoding.EncodeToString(data[:bytes]), "base64"
}

// OpenFile opens a regular file for reading as a stream, for as long as the image is open. Errors
// are those of Read.
func (im *Image) OpenFile(path string) (*ext4.File, error) {
	f, _, err := im.openFile(path)
	return f, err
}

func (im *Image) openFile(path string) (*ext4.File, string, error) {
	path, i, err := im.find(path)
	if err != nil {
		return nil, path, err
	}
	switch i.Type() {
	case ext4.Regular:
	case ext4.None:
		return nil, path, inspectError(path, fmt.Errorf("inode %d: it is not in use, or has a mode that means nothing: %#o", i.Number, i.Mode))
	default:
		return nil, path, sandbox.Errorf(sandbox.Invalid, "workspace disk read only supports regular files: %s is none", path)
	}
	f, err := i.Open()
	if err != nil {
		return nil, path, dumpError(path, err)
	}
	return f, path, nil
}

func dumpError(path string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: it ends early", ext4.ErrDamaged)
	}
	return pathError("failed to dump workspace disk file", path, err)
}
