package disk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	fitVersion = "fit-1" // of how images are fitted, for their templates' names
	fitTries   = 10

	// Inodes beyond those asked for are used up by empty files in lost+found:
	// some where rounding leaves them, many only where there can't be fewer.
	someFillers = 1024
	manyFillers = 64 << 10

	groupInodes = blockSize / inodeSize // inodes of a group come in so many
)

// geometry is what mke2fs is to make.
type geometry struct {
	blocks  int64
	inodes  int64 // in all
	fillers int64
}

// fit makes a file system in f that has what s says, and no more of it: what
// tables take is known only when they are made.
func (m *Images) fit(ctx context.Context, f *os.File, s Size) error {
	dir, err := os.MkdirTemp(m.cache, ".template-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p := geometry{blocks: s.length() / blockSize, inodes: s.Inodes + reservedInodes}
	for range fitTries {
		sb, err := m.format(ctx, f, s, p, dir)
		if err != nil {
			return err
		}
		if s.fits(sb) {
			return nil
		}
		p = s.better(p, sb)
	}
	return fmt.Errorf("%s can't be had to make %d bytes and %d inodes", m.tool, s.Bytes, s.Inodes)
}

// usable returns how many blocks of an empty file system can be filled: the
// kernel holds back 2 %, at most 4,096.
func usable(sb superblock) int64 {
	return int64(sb.freeBlocks) - min(int64(sb.blocks)/50, 4096)
}

// fits reports whether an empty file system has what s says.
func (s Size) fits(sb superblock) bool {
	more := s.Bytes/blockSize - usable(sb)
	return sb.blockSize == blockSize && more >= 0 && more <= slackBytes/blockSize &&
		(int64(sb.freeInodes) <= s.Inodes && int64(sb.freeInodes) >= s.Inodes-2*groupInodes*groupsOf(sb) || s.Inodes-int64(sb.freeInodes) <= 0 && tooFew(sb))
}

func groupsOf(sb superblock) int64 {
	return (int64(sb.blocks) + blocksPerGroup - 1) / blocksPerGroup
}

// tooFew reports whether a file system can't have fewer inodes than it has.
func tooFew(sb superblock) bool {
	groups := groupsOf(sb)
	return int64(sb.inodes) <= groups*groupInodes && groups*groupInodes > manyFillers
}

// better is p after what came of it.
func (s Size) better(p geometry, sb superblock) geometry {
	p.blocks += s.Bytes/blockSize - usable(sb)
	groups := groupsOf(sb)
	spare := int64(sb.freeInodes) + p.fillers - s.Inodes
	switch {
	case spare < 0 || spare <= someFillers:
	case int64(sb.inodes) > groups*groupInodes: // there can be fewer
		p.inodes = int64(sb.inodes) - (spare+groups*groupInodes-1)/(groups*groupInodes)*groups*groupInodes
		spare = 0
	case spare > manyFillers:
		spare = 0
	}
	p.fillers = max(spare, 0)
	return p
}

// format runs mke2fs on an empty f. dir is for its fillers.
func (m *Images) format(ctx context.Context, f *os.File, s Size, p geometry, dir string) (superblock, error) {
	if err := f.Truncate(0); err != nil {
		return superblock{}, err
	}
	if err := f.Truncate(p.blocks * blockSize); err != nil {
		return superblock{}, err
	}
	args := s.args(p.inodes)
	if p.fillers > 0 {
		if err := fill(filepath.Join(dir, "lost+found"), p.fillers); err != nil {
			return superblock{}, err
		}
		args = append(args, "-d", dir)
	}
	if out, err := command(ctx, m.tool, append(args, f.Name())...).CombinedOutput(); err != nil {
		return superblock{}, fmt.Errorf("%s: %w: %.300s", m.tool, err, strings.TrimSpace(string(out)))
	}
	return readSuperblock(f)
}

// fill makes n empty files in dir.
func fill(dir string, n int64) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, strconv.FormatInt(i, 36)), nil, 0o400); err != nil {
			return err
		}
	}
	return nil
}
