package quarantine_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/quarantine"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
)

// object is one of a pack that a test makes.
type object struct {
	kind byte
	size int64 // 0: that of body
	base int   // for a delta by place: how many bytes before it its base is
	ref  string
	body []byte
}

const (
	commitKind = 1
	treeKind   = 2
	blobKind   = 3
	ofsKind    = 6
	refKind    = 7
)

// id is what git calls the object.
func (o object) id() string {
	kind := map[byte]string{commitKind: "commit", treeKind: "tree", blobKind: "blob"}[o.kind]
	sum := sha1.Sum(append([]byte(fmt.Sprintf("%s %d\x00", kind, len(o.body))), o.body...))
	return hex.EncodeToString(sum[:])
}

func raw(id string) string {
	b, err := hex.DecodeString(id)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// encode writes the object as a pack has it.
func (o object) encode() []byte {
	size := o.size
	if size == 0 {
		size = int64(len(o.body))
	}
	b := []byte{o.kind<<4 | byte(size&15)}
	for size >>= 4; size > 0; size >>= 7 {
		b[len(b)-1] |= 0x80
		b = append(b, byte(size&0x7f))
	}
	switch o.kind {
	case ofsKind:
		back := o.base
		rest := []byte{byte(back & 0x7f)}
		for back >>= 7; back > 0; back >>= 7 {
			back--
			rest = append([]byte{byte(back&0x7f) | 0x80}, rest...)
		}
		b = append(b, rest...)
	case refKind:
		b = append(b, raw(o.ref)...)
	}
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write(o.body)
	_ = w.Close()
	return append(b, z.Bytes()...)
}

// packOf makes a pack, of a count that may lie.
func packOf(count int, objects ...object) []byte {
	b := append([]byte("PACK\x00\x00\x00\x02"), binary.BigEndian.AppendUint32(nil, uint32(count))...)
	for _, o := range objects {
		b = append(b, o.encode()...)
	}
	return sealed(b)
}

func sealed(b []byte) []byte {
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

// entry is one of a tree.
func entry(mode, name, id string) string { return mode + " " + name + "\x00" + raw(id) }

func blob(text string) object { return object{kind: blobKind, body: []byte(text)} }

func tree(entries ...string) object {
	return object{kind: treeKind, body: []byte(strings.Join(entries, ""))}
}

const who = "A <a@b.example> 1700000000 +0000"

func commit(tree string, parents ...string) object {
	text := "tree " + tree + "\n"
	for _, p := range parents {
		text += "parent " + p + "\n"
	}
	return object{kind: commitKind, body: []byte(text + "author " + who + "\ncommitter " + who + "\n\nwords\n")}
}

// branch is a source with one branch: a commit of that tree, and what else is needed.
func branch(root object, more ...object) quarantine.Source {
	c := commit(root.id())
	return stream{c.id() + " refs/heads/fix\n", packOf(2+len(more), append([]object{c, root}, more...)...)}
}

// blobFirst is a branch whose objects come in an order that git's packs don't have.
func blobFirst(root, b object) quarantine.Source {
	c := commit(root.id())
	return stream{c.id() + " refs/heads/fix\n", packOf(3, b, root, c)}
}

// bytesOf is a branch whose pack is that.
func bytesOf(pack []byte) quarantine.Source {
	return stream{commit(tree().id()).id() + " refs/heads/fix\n", pack}
}

func named(names ...string) quarantine.Source {
	root := tree()
	c := commit(root.id())
	var refs string
	for _, n := range names {
		refs += c.id() + " " + n + "\n"
	}
	return stream{refs, packOf(2, c, root)}
}

// zeros is an object of so many bytes, made as it is read.
type zeros struct {
	quarantine.Source
	size int64
}

func (z zeros) Pack(_ context.Context, _, _ []string, out io.Writer) error {
	head := object{kind: blobKind, size: z.size}.encode()[:6] // its size, in as many bytes as 2 GiB need
	if _, err := out.Write(append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"), head[:5]...)); err != nil {
		return err
	}
	w := zlib.NewWriter(out)
	piece := make([]byte, 1<<20)
	for range z.size >> 20 {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return w.Close()
}

// delta is one upon a base of a size, that says it makes so much.
func delta(from, to int64, rest string) []byte {
	var b []byte
	for _, n := range []int64{from, to} {
		for ; n >= 0x80; n >>= 7 {
			b = append(b, byte(n)|0x80)
		}
		b = append(b, byte(n))
	}
	return append(b, rest...)
}

// billion is a branch of few objects, whose tree has more files than fit on any disk.
func billion() quarantine.Source {
	leaf := blob("x")
	at, mode := leaf, "100644"
	objects := []object{leaf}
	for range 9 {
		var entries []string
		for i := range 10 {
			entries = append(entries, entry(mode, fmt.Sprintf("a-name-of-some-length-%d", i), at.id()))
		}
		at, mode = tree(entries...), "40000"
		objects = append(objects, at)
	}
	return branch(at, objects[:len(objects)-1]...)
}

func manyNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("refs/heads/b%d", i))
	}
	return names
}

// deltas is a blob, and a delta upon it.
func deltas(d object) []object {
	base := blob("hello")
	d.base = len(base.encode())
	return []object{base, d}
}

// TestHostileObjects: objects that are not as git makes them, that are too large or that
// are not there are refused, with words, and no byte of the repository changes.
func TestHostileObjects(t *testing.T) {
	mine := newRepo(t)
	b, empty := blob("x"), tree()
	modules := func(text string) (object, object) {
		m := blob(text)
		return tree(entry("100644", ".gitmodules", m.id())), m
	}
	url, urlBlob := modules("[submodule \"a\"]\n\tpath = a\n\turl = --upload-pack=evil\n")
	name, nameBlob := modules("[submodule \"../../a\"]\n\tpath = a\n\turl = https://git.example/a\n")
	where, whereBlob := modules("[submodule \"a\"]\n\tpath = -a\n\turl = https://git.example/a\n")
	lost, gone := commit(empty.id(), strings.Repeat("ab", 20)), commit(strings.Repeat("cd", 20))
	for what, tt := range map[string]struct {
		src  quarantine.Source
		says string
	}{
		"git-directory":        {branch(tree(entry("40000", ".git", empty.id())), empty), "hasDotgit"},
		"hooks-below-git":      {branch(tree(entry("100644", ".git/hooks", b.id())), b), "fullPathname"},
		"git-in-capitals":      {branch(tree(entry("40000", ".GIT", empty.id())), empty), "hasDotgit"},
		"git-for-windows":      {branch(tree(entry("40000", "git~1", empty.id())), empty), "hasDotgit"},
		"git-for-macs":         {branch(tree(entry("40000", ".g\u200cit", empty.id())), empty), "hasDotgit"},
		"git-with-a-backslash": {branch(tree(entry("40000", "a\\.git", empty.id())), empty), "hasDotgit"},
		"up":                   {branch(tree(entry("40000", "..", empty.id())), empty), "hasDotdot"},
		"here":                 {branch(tree(entry("40000", ".", empty.id())), empty), "hasDot"},
		"no-name":              {branch(tree(entry("40000", "", empty.id())), empty), "refuses: "},
		"a-path":               {branch(tree(entry("100644", "a/b", b.id())), b), "fullPathname"},
		"bad-mode":             {branch(tree(entry("100666", "a", b.id())), b), "badFilemode"},
		"set-id-mode":          {branch(tree(entry("104755", "a", b.id())), b), "badFilemode"},
		"device-mode":          {branch(tree(entry("60644", "a", b.id())), b), "badFilemode"},
		"padded-mode":          {branch(tree(entry("0100644", "a", b.id())), b), "zeroPaddedFilemode"},
		"mode-that-is-none":    {branch(tree(entry("1x0644", "a", b.id())), b), "refuses: "},
		"twice":                {branch(tree(entry("100644", "a", b.id()), entry("100644", "a", b.id())), b), "duplicateEntries"},
		"in-no-order":          {branch(tree(entry("100644", "b", b.id()), entry("100644", "a", b.id())), b), "treeNotSorted"},
		"null":                 {branch(tree(entry("100644", "a", strings.Repeat("0", 40))), b), "refuses: "},
		"tree-that-is-cut":     {branch(object{kind: treeKind, body: []byte("100644 a\x00short")}), "refuses: "},
		"modules-as-a-link":    {branch(tree(entry("120000", ".gitmodules", b.id())), b), "gitmodulesSymlink"},
		"modules-url":          {branch(url, urlBlob), "gitmodulesUrl"},
		"modules-name":         {branch(name, nameBlob), "gitmodulesName"},
		"modules-path":         {branch(where, whereBlob), "gitmodulesPath"},
		"modules-before-tree":  {blobFirst(name, nameBlob), "gitmodulesName"},
		"author-that-is-none":  {stream{object{kind: commitKind, body: []byte("tree " + empty.id() + "\n\nx")}.id() + " refs/heads/fix\n", packOf(2, object{kind: commitKind, body: []byte("tree " + empty.id() + "\n\nx")}, empty)}, "missingAuthor"},

		"two-gigabytes":       {zeros{named("refs/heads/fix"), 2 << 30}, "a blob of 2 GiB, where 100 MiB may be"},
		"bomb":                {bytesOf(packOf(1, object{kind: blobKind, size: 10, body: make([]byte, 8<<20)})), "not as large as it says"},
		"less-than-it-says":   {bytesOf(packOf(1, object{kind: blobKind, size: 1000, body: []byte("x")})), "not as large as it says"},
		"delta-bomb":          {bytesOf(packOf(2, deltas(object{kind: ofsKind, body: delta(5, 2<<30, "\x90\x05")})...)), "a blob of 2 GiB"},
		"delta-of-another":    {bytesOf(packOf(2, deltas(object{kind: ofsKind, body: delta(9, 5, "\x90\x05")})...)), "a broken delta"},
		"delta-that-is-cut":   {bytesOf(packOf(2, deltas(object{kind: ofsKind, body: []byte{0x80}})...)), "a broken delta"},
		"delta-beyond-base":   {bytesOf(packOf(2, deltas(object{kind: ofsKind, body: delta(5, 5, "\x91\x70\x05")})...)), "objects that git refuses"},
		"delta-of-nonsense":   {bytesOf(packOf(2, deltas(object{kind: ofsKind, body: delta(5, 5, "\x00\x00\x00")})...)), "objects that git refuses"},
		"delta-upon-nothing":  {bytesOf(packOf(1, object{kind: ofsKind, base: 5, body: delta(5, 5, "\x90\x05")})), "a broken delta"},
		"delta-upon-itself":   {bytesOf(packOf(1, object{kind: ofsKind, base: 0, body: delta(5, 5, "\x90\x05")})), "a broken delta"},
		"delta-in-a-circle":   {bytesOf(packOf(2, object{kind: refKind, ref: strings.Repeat("aa", 20), body: delta(5, 5, "\x90\x05")}, object{kind: refKind, ref: strings.Repeat("bb", 20), body: delta(5, 5, "\x90\x05")})), "the pack does not hold"},
		"type-of-none":        {bytesOf(packOf(1, object{kind: 5, body: []byte("x")})), "no known type"},
		"more-than-it-counts": {bytesOf(packOf(1, b, empty)), "checksum"},
		"fewer":               {bytesOf(packOf(3, b, empty)), "the sandbox's objects"},
		"four-billion":        {bytesOf(packOf(1<<32-1, b)), "4294967295 of them"},
		"more-after-the-end":  {bytesOf(append(packOf(1, b), 'x')), "more follows"},
		"checksum":            {bytesOf(append(packOf(1, b)[:len(packOf(1, b))-1], 0)), "checksum"},
		"broken-bytes":        {bytesOf(sealed([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01\x31garbage"))), "broken"},
		"version":             {bytesOf(sealed([]byte("PACK\x00\x00\x00\x09\x00\x00\x00\x00"))), "version 9"},
		"cut-short":           {bytesOf(packOf(1, b)[:20]), "cut short"},
		"no-pack":             {bytesOf([]byte("# v2 git bundle\n")), "no pack"},
		"nothing":             {bytesOf(nil), "cut short"},

		"tree-of-a-billion": {billion(), "more files than can be looked at"},
		"lacks-the-tree":    {stream{gone.id() + " refs/heads/fix\n", packOf(1, gone)}, "did not receive"},
		"lacks-a-blob":      {branch(tree(entry("100644", "a", strings.Repeat("ab", 20)))), "did not receive"},
		"lacks-a-parent":    {stream{lost.id() + " refs/heads/fix\n", packOf(2, lost, empty)}, "did not receive"},
		"lacks-the-commit":  {bytesOf(packOf(1, b)), "leads to no commit"},
		"branch-of-a-blob":  {stream{b.id() + " refs/heads/fix\n", packOf(1, b)}, "leads to no commit"},
		"tag-of-a-tree":     {stream{empty.id() + " refs/tags/v1\n", packOf(1, empty)}, "leads to no commit"},

		"ref-up":            {named("refs/heads/../../heads/main"), "none for git"},
		"ref-that-escapes":  {named("refs/heads/a\x1b[31m"), "a character"},
		"ref-that-deceives": {named("refs/heads/a\u202eb"), "a character"},
		"ref-in-a-lock":     {named("refs/heads/a.lock"), "none for git"},
		"ref-hidden":        {named("refs/heads/.git"), "none for git"},
		"ref-as-option":     {named("refs/heads/-x"), "like an option"},
		"ref-long":          {named("refs/heads/" + strings.Repeat("a", 300)), "too long"},
		"ref-longer":        {named("refs/heads/" + strings.Repeat("a", 3000)), "longer than"},
		"ref-as-tags":       {named("refs/heads/tags/v1"), "not a branch's here"},
		"ref-elsewhere":     {named("refs/remotes/origin/main"), "a line that is none"},
		"ref-twice":         {named("refs/heads/a", "refs/heads/a"), "twice"},
		"ref-and-directory": {named("refs/heads/a", "refs/heads/a/b"), "can't both be"},
		"refs-many":         {named(manyNames(1000)...), "1000 branches"},
		"ref-of-no-object":  {stream{"zz refs/heads/a\n", nil}, "a line that is none"},
		"ref-list-of-noise": {stream{strings.Repeat("x", 20<<20), nil}, "longer than can be"},
	} {
		t.Run(what, func(t *testing.T) {
			before := mine.state()
			_, err := mine.fetch(tt.src)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("said %v, want %q", err, tt.says)
			}
			if added := mine.added(before); len(added) > 0 {
				t.Errorf("%q were written", added)
			}
		})
	}
}

// TestObjectsThatPlainGitTakes: what is refused is refused for what is looked at: the same
// pack goes into a repository of a git that looks at nothing.
func TestObjectsThatPlainGitTakes(t *testing.T) {
	mine := newRepo(t)
	root := tree(entry("40000", ".git", tree().id()))
	pack := branch(root, tree()).(stream).pack
	if out := mine.gitIn(string(pack), "index-pack", "--stdin"); !strings.HasPrefix(out, "pack") {
		t.Errorf("plain git says %q", out)
	}
	good := blob("y")
	res, err := mine.fetch(branch(tree(entry("100644", "a", good.id())), good))
	if err != nil || states(res)["fix"] != "new 1" {
		t.Errorf("a good pack made the same way: %v, %v", res, err)
	}
}

// TestSources that fail, hang or say too much.
func TestSources(t *testing.T) {
	mine := newRepo(t)
	before := mine.state()
	broken := errors.New("the guest is gone")
	if _, err := mine.fetch(failing{err: broken}); !errors.Is(err, broken) {
		t.Errorf("refs: %v", err)
	}
	if _, err := mine.fetch(failing{Source: named("refs/heads/a"), err: broken}); !errors.Is(err, broken) {
		t.Errorf("pack: %v", err)
	}
	if res, err := mine.fetch(stream{}); err != nil || len(res.Refs) != 0 {
		t.Errorf("no refs: %v, %v", res, err)
	}
	if added := mine.added(before); len(added) > 0 {
		t.Errorf("%q were written", added)
	}
}

// failing is a source that breaks while it sends.
type failing struct {
	quarantine.Source
	err error
}

func (f failing) Refs(ctx context.Context, out io.Writer) error {
	if f.Source == nil {
		return f.err
	}
	return f.Source.Refs(ctx, out)
}

func (f failing) Pack(_ context.Context, _, _ []string, out io.Writer) error {
	_, _ = io.WriteString(out, "PACK\x00\x00\x00\x02")
	return f.err
}

// TestInterrupted: a sandbox that hangs is left, and nothing was written.
func TestInterrupted(t *testing.T) {
	mine := newRepo(t)
	before := mine.state()
	git, err := jail.Find(t.Context(), os.Getenv("PATH"))
	if err != nil {
		t.Fatal(err)
	}
	repo, err := quarantine.Open(t.Context(), git, mine.dir)
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	src := hanging{named("refs/heads/a"), func() { cancel(gone) }}
	if _, err := repo.Fetch(ctx, src, quarantine.Options{State: t.TempDir(), ID: testID, Name: "otter"}); !errors.Is(err, gone) {
		t.Errorf("interrupted: %v", err)
	}
	if added := mine.added(before); len(added) > 0 {
		t.Errorf("%q were written", added)
	}
}

// hanging is a source that sends nothing, until it is interrupted.
type hanging struct {
	quarantine.Source
	begun func()
}

func (h hanging) Pack(ctx context.Context, _, _ []string, _ io.Writer) error {
	h.begun()
	<-ctx.Done()
	return context.Cause(ctx)
}
