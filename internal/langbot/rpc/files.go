package rpc

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
	exactjson "sigs.k8s.io/json"
)

// fileChunk is how much of a file one __file_chunk carries.
const fileChunk = 16 << 10

// FileLimits bound the files that the other side sends and that wait to be
// taken. The zero value has the defaults.
type FileLimits struct {
	MaxBytes int64         // of one file; 0: 20 MiB
	MaxTotal int64         // of all of them; 0: three times MaxBytes
	MaxFiles int           // 0: 128
	MaxAge   time.Duration // since its newest chunk; an older one may be dropped for another. 0: 10 minutes
}

func (l FileLimits) withDefaults() FileLimits {
	if l.MaxBytes <= 0 {
		l.MaxBytes = 20 << 20
	}
	if l.MaxTotal <= 0 {
		l.MaxTotal = 3 * l.MaxBytes
	}
	if l.MaxFiles <= 0 {
		l.MaxFiles = 128
	}
	if l.MaxAge <= 0 {
		l.MaxAge = 10 * time.Minute
	}
	return l
}

// files are those that came, in whole or in part.
type files struct {
	limits FileLimits
	now    func() time.Time

	mu    sync.Mutex
	all   map[string]*file
	total int64
}

type file struct {
	chunks [][]byte
	size   int64
	amount int
	length int64 // as it was announced; -1: it was not
	newest time.Time
}

func newFiles(l FileLimits, now func() time.Time) *files {
	return &files{limits: l.withDefaults(), now: now, all: map[string]*file{}}
}

var (
	fileKey   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$`) })
	extension = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`) })
)

// chunk is the data of a __file_chunk.
type chunk struct {
	Key    string `json:"file_key"`
	Length *int64 `json:"file_length"`
	Data   string `json:"chunk_base64"`
	Index  *int   `json:"chunk_index"`
	Amount *int   `json:"chunk_amount"`
	Size   *int64 `json:"chunk_size"`
}

// parseChunk reads a chunk and checks all that can be without the others.
func parseChunk(data json.RawMessage) (chunk, []byte, error) {
	var c chunk
	if err := exactjson.UnmarshalCaseSensitivePreserveInts(data, &c); err != nil {
		return c, nil, errors.New("a file chunk has a field of the wrong type")
	}
	switch {
	case !fileKey().MatchString(c.Key) || strings.Contains(c.Key, ".."):
		return c, nil, errors.New("invalid file_key: 1 to 255 letters, digits, '.', '_' and '-', without '..'")
	case c.Index == nil || c.Amount == nil || *c.Amount <= 0 || *c.Index < 0 || *c.Index >= *c.Amount:
		return c, nil, errors.New("invalid position: chunk_index has to be of 0 to chunk_amount-1")
	case len(c.Data) > base64.StdEncoding.EncodedLen(fileChunk):
		return c, nil, fmt.Errorf("a file chunk is at most %d bytes", fileChunk)
	}
	raw, err := base64.StdEncoding.DecodeString(c.Data)
	switch {
	case err != nil:
		return c, nil, errors.New("chunk_base64 is no base64")
	case len(raw) > fileChunk:
		return c, nil, fmt.Errorf("a file chunk is at most %d bytes", fileChunk)
	case c.Size != nil && *c.Size != int64(len(raw)):
		return c, nil, fmt.Errorf("chunk_size is %d, and the chunk has %d bytes", *c.Size, len(raw))
	case c.Length != nil && *c.Length < 0:
		return c, nil, errors.New("file_length must not be negative")
	}
	return c, raw, nil
}

// add keeps one chunk. The first replaces what there is by its key; another has
// to be the next.
func (f *files) add(data json.RawMessage) error {
	c, raw, err := parseChunk(data)
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		err = f.addLocked(c, raw)
	}
	if err != nil {
		return &actionError{"ValueError: " + err.Error()}
	}
	return nil
}

func (f *files) addLocked(c chunk, raw []byte) error {
	length := int64(-1)
	if c.Length != nil {
		length = *c.Length
	}
	if length > f.limits.MaxBytes {
		return fmt.Errorf("a file is at most %d bytes, and this one has %d", f.limits.MaxBytes, length)
	}
	if *c.Index == 0 {
		f.removeLocked(c.Key)
	}
	it := f.all[c.Key]
	switch {
	case it == nil && *c.Index != 0:
		return errors.New("a file's first chunk is number 0")
	case it != nil && (*c.Index != len(it.chunks) || *c.Amount != it.amount || length != it.length):
		f.removeLocked(c.Key)
		return errors.New("a chunk that does not follow the one before it: send the file anew")
	}
	f.makeRoomLocked(it == nil, int64(len(raw)))
	switch {
	case it == nil && len(f.all) >= f.limits.MaxFiles:
		return fmt.Errorf("%d files wait to be used: use one of them before another is sent", len(f.all))
	case f.total+int64(len(raw)) > f.limits.MaxTotal:
		return fmt.Errorf("the files that wait to be used would be over %d bytes", f.limits.MaxTotal)
	case it != nil && it.size+int64(len(raw)) > f.limits.MaxBytes:
		f.removeLocked(c.Key)
		return fmt.Errorf("a file is at most %d bytes", f.limits.MaxBytes)
	case it == nil:
		it = &file{amount: *c.Amount, length: length}
		f.all[c.Key] = it
	}
	it.chunks = append(it.chunks, raw)
	it.size += int64(len(raw))
	it.newest = f.now()
	f.total += int64(len(raw))
	return nil
}

// makeRoomLocked drops what is too old, if there is no room without.
func (f *files) makeRoomLocked(another bool, bytes int64) {
	if f.total+bytes <= f.limits.MaxTotal && (!another || len(f.all) < f.limits.MaxFiles) {
		return
	}
	for key, it := range f.all {
		if f.now().Sub(it.newest) > f.limits.MaxAge {
			f.removeLocked(key)
		}
	}
}

func (f *files) removeLocked(key string) {
	if it := f.all[key]; it != nil {
		f.total -= it.size
		delete(f.all, key)
	}
}

func (f *files) take(key string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.all[key]
	if it == nil {
		return nil, errors.New("no file was sent by this file_key")
	}
	f.removeLocked(key)
	switch {
	case len(it.chunks) != it.amount:
		return nil, fmt.Errorf("of the file only %d of %d chunks were sent", len(it.chunks), it.amount)
	case it.length >= 0 && it.length != it.size:
		return nil, fmt.Errorf("the file has %d bytes and was said to have %d", it.size, it.length)
	}
	return bytes.Join(it.chunks, nil), nil
}

func (f *files) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.all)
	f.total = 0
}

// TakeFile returns a file that the other side sent whole, and forgets it.
func (p *Peer) TakeFile(key string) ([]byte, error) { return p.files.take(key) }

// SendFile sends a file, and returns the key by which an action names it. ext is
// of its name, without the dot; "": none.
func (p *Peer) SendFile(ctx context.Context, content []byte, ext string) (key string, err error) {
	if ext != "" && !extension().MatchString(ext) {
		return "", fmt.Errorf("invalid extension %q: 1 to 32 letters, digits, '_' and '-'", ext)
	}
	sum := sha256.Sum256(content)
	id := make([]byte, 16)
	_, _ = rand.Read(id) // it never fails
	key = hex.EncodeToString(sum[:8]) + "-" + hex.EncodeToString(id)
	if ext != "" {
		key += "." + ext
	}
	amount := max(1, (len(content)+fileChunk-1)/fileChunk)
	for i := range amount {
		part := content[i*fileChunk : min((i+1)*fileChunk, len(content))]
		err := p.Call(ctx, langbot.ActionFileChunk, map[string]any{
			"file_key": key, "file_length": len(content), "chunk_base64": base64.StdEncoding.EncodeToString(part),
			"chunk_index": i, "chunk_amount": amount, "chunk_size": len(part),
		}, nil, nil)
		if err != nil {
			return "", err
		}
	}
	return key, nil
}
