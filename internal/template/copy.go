package template

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

const (
	maxMember   = 4096 // bytes of a member's name or of a link's target
	memberBytes = 1024 // of an archive's bound, that each member counts for
)

// copyStep puts the members of an archive below its target, as its owner's.
func (r *run) copyStep(ctx context.Context, st Step) error {
	f, err := r.s.archives.open(r.owner, st.FilesHash)
	if err != nil {
		return err
	}
	defer f.Close()
	owner, mode, err := r.copyOptions(ctx, st.Args)
	if err != nil {
		return err
	}
	src := sourceBase(st.Args[0])
	p := &plot{src: src, mode: mode, most: r.s.o.Contents}
	if err := p.look(reader{ctx, f}); err != nil {
		return r.fail("%s", err.Error())
	}
	dir, err := r.target(ctx, st.Args[1], p)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(p.rewrite(reader{ctx, f}, pw)) }() // ends with pr
	err = r.guest.Extract(ctx, dir, owner, pr)
	pr.CloseWithError(io.ErrClosedPipe)
	return err
}

// copyOptions returns whose the copies are, and their mode; -1: their own.
func (r *run) copyOptions(ctx context.Context, args []string) (owner string, mode int64, err error) {
	owner, mode = r.at.User, -1
	if len(args) > 2 && args[2] != "" {
		name, err := r.evaluate(ctx, args[2])
		if err != nil {
			return "", 0, err
		}
		user, group, grouped := strings.Cut(name, ":")
		if !validUser(user) || grouped && group != user {
			return "", 0, r.fail("owner %.80q: an account's name, whose own group goes with it", name)
		}
		owner = user
	}
	if len(args) > 3 && args[3] != "" {
		m, err := strconv.ParseUint(args[3], 8, 16)
		if err != nil || m > 0o777 {
			return "", 0, r.fail("mode %.20q: not from 0 to 0777", args[3])
		}
		mode = int64(m)
	}
	return owner, mode, nil
}

// target makes the directory that p's members go to, and returns it.
func (r *run) target(ctx context.Context, to string, p *plot) (string, error) {
	slash := strings.HasSuffix(to, "/") || to == "." || strings.HasSuffix(to, "/.")
	home := "/home/" + defaultUser
	if r.at.User == root {
		home = "/" + root
	}
	to, err := r.absolute(ctx, to, home)
	if err != nil {
		return "", err
	}
	if p.single && !slash {
		code, err := r.tell(ctx, "make the directory of "+to, makeAbove, to, path.Dir(to))
		if err != nil {
			return "", err
		}
		if code != exitDir {
			p.name = path.Base(to)
			return path.Dir(to), nil
		}
	} else if _, err := r.tell(ctx, "make the directory "+to, makeTarget, to); err != nil {
		return "", err
	}
	return to, nil
}

// sourceBase returns the part of a source before its first pattern: what was chosen
// by the client lies there.
func sourceBase(src string) string {
	parts := strings.Split(path.Clean("/"+src), "/")[1:]
	for i, part := range parts {
		if strings.ContainsAny(part, `*?[{\`) {
			parts = parts[:i]
			break
		}
	}
	if p := path.Join(parts...); p != "" {
		return p
	}
	return "."
}

// plot says where the members of one archive go.
type plot struct {
	src    string // they are this, or below it
	mode   int64  // of all; -1: their own
	most   int64  // bytes of contents
	single bool   // src is a file or a link
	name   string // what a single one is called at its target
}

// members calls f for each member of an archive, which may be compressed.
func (p *plot) members(r io.Reader, f func(*tar.Header, io.Reader) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var plain io.Reader = in
	if magic, _ := in.Peek(2); string(magic) == "\x1f\x8b" {
		z, err := gzip.NewReader(in)
		if err != nil {
			return errors.New("the archive is damaged")
		}
		plain = z
	}
	left := &io.LimitedReader{R: plain, N: 2*p.most + 1<<20}
	tr := tar.NewReader(left)
	for room := p.most; ; {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if left.N <= 0 {
			return fmt.Errorf("the archive holds more than %d bytes", p.most)
		}
		if err != nil {
			return errors.New("the archive is damaged")
		}
		if h.Size < 0 || h.Size > room-memberBytes {
			return fmt.Errorf("the archive holds more than %d bytes, counting %d for each member", p.most, memberBytes)
		}
		room -= h.Size + memberBytes
		if err := f(h, tr); err != nil {
			return err
		}
	}
}

// look reads an archive to its end: it is refused before any of it is used.
func (p *plot) look(f io.Reader) error {
	found := false
	err := p.members(f, func(h *tar.Header, _ io.Reader) error {
		rel, skip, err := p.place(h)
		if err != nil || skip {
			return err
		}
		found = true
		if rel == "." && h.Typeflag != tar.TypeDir {
			p.single, p.name = true, path.Base(p.src)
		} else if p.single {
			return fmt.Errorf("member %.200q: below a file", h.Name)
		}
		return nil
	})
	if err == nil && !found {
		return fmt.Errorf("the archive does not hold %.200q", p.src)
	}
	return err
}

// place returns where a member goes, relative to src. What is not below src is
// skipped.
func (p *plot) place(h *tar.Header) (rel string, skip bool, err error) {
	switch h.Typeflag {
	case tar.TypeXGlobalHeader:
		return "", true, nil
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
	default:
		return "", false, fmt.Errorf("member %.200q: neither file, directory nor link", h.Name)
	}
	rel, ok, err := p.below(h.Name)
	if err != nil || !ok {
		return "", true, err
	}
	if l := h.Linkname; h.Typeflag == tar.TypeSymlink && (l == "" || len(l) > maxMember || strings.ContainsRune(l, 0)) {
		return "", false, fmt.Errorf("member %.200q: a link to nothing that can be", h.Name)
	}
	return rel, false, nil
}

// below takes src off a name.
func (p *plot) below(name string) (rel string, ok bool, err error) {
	clean, err := cleanMember(name)
	switch {
	case err != nil:
		return "", false, err
	case p.src == "." || clean == p.src:
		if clean == p.src {
			clean = "."
		}
		return clean, true, nil
	}
	rel, ok = strings.CutPrefix(clean, p.src+"/")
	return rel, ok, nil
}

// cleanMember refuses a name that leaves the archive.
func cleanMember(name string) (string, error) {
	if name == "" || len(name) > maxMember || name[0] == '/' || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("member %.200q: not a name below the archive's own directory", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fmt.Errorf("member %.200q: its name goes up", name)
		}
	}
	return path.Clean(name), nil
}

// rewrite copies the members to w, under the names that they have at the
// target. The guest's agent checks them once more.
func (p *plot) rewrite(f io.Reader, w io.Writer) error {
	tw := tar.NewWriter(w)
	err := p.members(f, func(h *tar.Header, body io.Reader) error {
		rel, skip, err := p.place(h)
		if err != nil || skip {
			return err
		}
		out, err := p.header(h, rel)
		if err != nil || out == nil {
			return err
		}
		if err := tw.WriteHeader(out); err != nil {
			return err
		}
		_, err = io.Copy(tw, body)
		return err
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

// header is a member's at the target; nil for the target itself.
func (p *plot) header(h *tar.Header, rel string) (*tar.Header, error) {
	out := &tar.Header{Typeflag: h.Typeflag, Name: rel, Mode: h.Mode & 0o777, ModTime: h.ModTime, Linkname: h.Linkname, Size: h.Size}
	if p.mode >= 0 {
		out.Mode = p.mode
	}
	if rel == "." {
		if h.Typeflag == tar.TypeDir {
			return nil, nil
		}
		out.Name = p.name
	}
	if h.Typeflag == tar.TypeLink {
		to, ok, err := p.below(h.Linkname)
		if err != nil || !ok || p.single {
			return nil, fmt.Errorf("member %.200q: a hard link to what is not copied", h.Name)
		}
		out.Linkname = to
	}
	if h.Typeflag != tar.TypeReg {
		out.Size = 0
	}
	return out, nil
}
