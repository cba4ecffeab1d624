package ext4

import "bytes"

// transaction is one that the log has as a whole.
type transaction struct {
	sequence uint32
	start    uint32 // its first block
	blocks   uint32 // in all, with that of the commit
}

// tag names the block that a block of the log is a copy of.
type tag struct {
	block   uint64
	escaped bool // its first four bytes are the journal's magic number, and zeros in the log
	sum     uint32
}

// replay finds the transactions that are whole, then what they revoke, then where the newest
// copy of each block lies. Blocks that are revoked later on are not replayed.
func (j *journal) replay() (map[uint64]int64, error) {
	buf := make([]byte, j.fs.super.BlockSize)
	whole, next, err := j.scan(buf)
	if err != nil {
		return nil, err
	}
	if err := j.checkFast(next, buf); err != nil {
		return nil, err
	}
	revoked := map[uint64]uint32{}
	for _, t := range whole {
		err := j.each(t, buf, func(kind, _ uint32) error {
			if kind != journalRevoke {
				return nil
			}
			return j.revokes(buf, t.sequence, revoked)
		})
		if err != nil {
			return nil, err
		}
	}
	newest := map[uint64]int64{}
	for _, t := range whole {
		err := j.each(t, buf, func(kind, at uint32) error {
			if kind != journalDescriptor {
				return nil
			}
			return j.copies(buf, at, t.sequence, revoked, newest)
		})
		if err != nil {
			return nil, err
		}
	}
	return newest, nil
}

// scan finds the transactions that were committed. The log ends at the first block that is not
// the next one's, or whose checksum is wrong. It reads no more blocks than there are.
func (j *journal) scan(buf []byte) (whole []transaction, next uint32, err error) {
	t := transaction{sequence: j.sequence, start: j.start}
	s := scanner{j: j, sum: ^uint32(0)}
	for read, size := uint32(0), j.last-j.first; read < size; {
		at := j.after(t.start, t.blocks)
		if err := j.read(at, buf); err != nil {
			return nil, 0, err
		}
		kind, ok := j.header(buf, t.sequence)
		if !ok {
			break
		}
		used, end, err := s.block(kind, at, buf, t.sequence, size-read)
		if err != nil {
			return nil, 0, err
		}
		if end {
			break
		}
		read += used
		t.blocks += used
		if kind == journalCommit {
			whole = append(whole, t)
			t = transaction{sequence: t.sequence + 1, start: j.after(t.start, t.blocks)}
			s.bad, s.sum = false, ^uint32(0)
		}
	}
	return whole, t.sequence, nil
}

// scanner is what is known of the transaction that a scan is in.
type scanner struct {
	j   *journal
	bad bool   // a block of it has a wrong checksum
	sum uint32 // of the first kind, over all of its blocks
	// when the last transaction was committed.
	seconds uint64
	nanos   uint32
}

// block takes a block of the log, and says how many it stands for, or that the log ends there.
func (s *scanner) block(kind, at uint32, buf []byte, sequence, left uint32) (used uint32, end bool, err error) {
	j := s.j
	switch kind {
	case journalDescriptor:
		s.bad = s.bad || !j.tailIsRight(buf)
		tags, err := j.tags(buf)
		if err != nil {
			// What an unclean log has there may be of an older one.
			return 0, true, nil
		}
		used = 1 + uint32(len(tags))
		if used > left {
			return 0, true, nil
		}
		return used, false, s.sumBlocks(at, used, buf)
	case journalRevoke:
		s.bad = s.bad || !j.tailIsRight(buf)
		return 1, false, nil
	case journalCommit:
		seconds, nanos := be.Uint64(buf[0x30:]), be.Uint32(buf[0x38:])
		older := seconds < s.seconds || seconds == s.seconds && nanos < s.nanos
		if s.bad && !older {
			return 0, false, j.damaged("transaction %d has a wrong checksum", sequence)
		}
		if s.bad || !s.commitIsRight(buf) {
			return 0, true, nil
		}
		s.seconds, s.nanos = seconds, nanos
		return 1, false, nil
	}
	return 0, true, nil
}

// sumBlocks goes on with the first kind of checksum, over a descriptor and its copies.
func (s *scanner) sumBlocks(at, count uint32, buf []byte) error {
	if s.j.compat&journalCompatSum == 0 {
		return nil
	}
	s.sum = crc32be(s.sum, buf)
	other := make([]byte, len(buf))
	for n := uint32(1); n < count; n++ {
		if err := s.j.read(s.j.after(at, n), other); err != nil {
			return err
		}
		s.sum = crc32be(s.sum, other)
	}
	return nil
}

// commitIsRight verifies a commit's checksum, of either kind.
func (s *scanner) commitIsRight(buf []byte) bool {
	found := be.Uint32(buf[0x10:])
	if s.j.hasSums() {
		clear(buf[0x10:0x14])
		return crc32c(s.j.seed, buf) == found
	}
	if s.j.compat&journalCompatSum == 0 {
		return true
	}
	none := buf[0xc] == 0 && buf[0xd] == 0 && found == 0
	return none || buf[0xc] == 1 && buf[0xd] == 4 && found == s.sum
}

// header reads a block's kind, where it is one of the journal's own and of a transaction.
func (j *journal) header(buf []byte, sequence uint32) (kind uint32, ok bool) {
	return be.Uint32(buf[4:]), bytes.Equal(buf[:4], journalMagic[:]) && be.Uint32(buf[8:]) == sequence
}

// each calls do for the blocks of a transaction that are no copies; they are in buf.
func (j *journal) each(t transaction, buf []byte, do func(kind, at uint32) error) error {
	for n := uint32(0); n < t.blocks; {
		at := j.after(t.start, n)
		if err := j.read(at, buf); err != nil {
			return err
		}
		kind, ok := j.header(buf, t.sequence)
		if !ok {
			return j.damaged("transaction %d changed meanwhile", t.sequence)
		}
		n++
		if kind == journalDescriptor {
			tags, err := j.tags(buf)
			if err != nil {
				return err
			}
			n += uint32(len(tags))
		}
		if err := do(kind, at); err != nil {
			return err
		}
	}
	return nil
}

// tailIsRight verifies the checksum at the end of a descriptor, or of what is revoked.
func (j *journal) tailIsRight(buf []byte) bool {
	if !j.hasSums() {
		return true
	}
	end := len(buf) - 4
	return crc32c(crc32c(j.seed, buf[:end]), zeros[:]) == be.Uint32(buf[end:])
}

// tailBytes is what that takes.
func (j *journal) tailBytes() int {
	if j.hasSums() {
		return 4
	}
	return 0
}

// tags reads those of a descriptor.
func (j *journal) tags(buf []byte) ([]tag, error) {
	const (
		escaped  = 1
		sameUUID = 2
		lastTag  = 8
	)
	size := j.tagBytes()
	var tags []tag
	for b := buf[journalHeaderBytes : len(buf)-j.tailBytes()]; len(b) >= size; {
		t := tag{block: uint64(be.Uint32(b))}
		var flags uint32
		if j.incompat&journalIncSum3 != 0 {
			flags, t.sum = be.Uint32(b[4:]), be.Uint32(b[12:])
		} else {
			flags, t.sum = uint32(be.Uint16(b[6:])), uint32(be.Uint16(b[4:]))
		}
		if j.incompat&journalInc64bit != 0 {
			t.block |= uint64(be.Uint32(b[8:])) << 32
		}
		t.escaped = flags&escaped != 0
		tags = append(tags, t)
		b = b[size:]
		if flags&sameUUID == 0 {
			if len(b) < 16 {
				return nil, j.damaged("a descriptor is cut off")
			}
			b = b[16:]
		}
		if flags&lastTag != 0 {
			break
		}
	}
	return tags, nil
}

func (j *journal) tagBytes() int {
	if j.incompat&journalIncSum3 != 0 {
		return 16
	}
	size := 8
	if j.incompat&journalIncSum2 != 0 {
		size += 2
	}
	if j.incompat&journalInc64bit != 0 {
		size += 4
	}
	return size
}

// revokes remembers what a block revokes, up to a transaction.
func (j *journal) revokes(buf []byte, sequence uint32, revoked map[uint64]uint32) error {
	if !j.tailIsRight(buf) {
		return j.damaged("transaction %d revokes blocks with a wrong checksum", sequence)
	}
	const head = journalHeaderBytes + 4
	used, size := int(be.Uint32(buf[journalHeaderBytes:])), 4
	if j.incompat&journalInc64bit != 0 {
		size = 8
	}
	if used < head || used > len(buf)-j.tailBytes() {
		return j.damaged("transaction %d revokes %d bytes of blocks", sequence, used)
	}
	for b := buf[head:used]; len(b) >= size; b = b[size:] {
		block := uint64(be.Uint32(b))
		if size == 8 {
			block = be.Uint64(b)
		}
		if last, ok := revoked[block]; !ok || int32(sequence-last) > 0 {
			revoked[block] = sequence
		}
	}
	if len(revoked) > maxRevoked {
		return unsupported(j.file.inode.Number, "journal: it revokes more than %d blocks; mount the file system once, or run e2fsck", maxRevoked)
	}
	return nil
}

// copies remembers where the copies lie that a descriptor is followed by.
func (j *journal) copies(buf []byte, at, sequence uint32, revoked map[uint64]uint32, newest map[uint64]int64) error {
	if !j.tailIsRight(buf) {
		return j.damaged("transaction %d has a wrong checksum", sequence)
	}
	tags, err := j.tags(buf)
	if err != nil {
		return err
	}
	for n, t := range tags {
		if last, ok := revoked[t.block]; ok && int32(sequence-last) <= 0 {
			continue
		}
		if t.block >= j.fs.super.Blocks {
			return j.damaged("a copy of block %d, and there are %d", t.block, j.fs.super.Blocks)
		}
		place, err := j.where(j.after(at, uint32(n)+1))
		if err != nil {
			return err
		}
		if err := j.checkCopy(place, t, sequence, buf); err != nil {
			return err
		}
		where := int64(place) * int64(j.fs.super.BlockSize) << 1
		if t.escaped {
			where |= 1
		}
		if newest[t.block] = where; len(newest) > maxReplayed {
			return unsupported(j.file.inode.Number, "journal: it has more than %d blocks; mount the file system once, or run e2fsck", maxReplayed)
		}
	}
	return nil
}

// checkCopy verifies the checksum of a copy.
func (j *journal) checkCopy(place uint64, t tag, sequence uint32, buf []byte) error {
	if !j.hasSums() {
		return nil
	}
	if err := j.fs.dev.read(place, 0, buf); err != nil {
		return within(j.file.inode.Number, err)
	}
	sum := crc32c(crc32c(j.seed, be.AppendUint32(nil, sequence)), buf)
	if j.incompat&journalIncSum3 == 0 {
		sum &= 0xffff
	}
	if sum != t.sum {
		return j.damaged("transaction %d has a copy of block %d with a wrong checksum", sequence, t.block)
	}
	return nil
}
