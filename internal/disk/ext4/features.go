package ext4

import (
	"fmt"
	"strings"
)

// Features that change how something is read.
const (
	compatHasJournal   = 0x4
	compatDirIndex     = 0x20
	compatSparseSuper2 = 0x200

	incompatFiletype   = 0x2
	incompatRecover    = 0x4
	incompatJournalDev = 0x8
	incompatMetaBG     = 0x10
	incompatExtents    = 0x40
	incompat64bit      = 0x80
	incompatMMP        = 0x100
	incompatFlexBG     = 0x200
	incompatEAInode    = 0x400
	incompatCsumSeed   = 0x2000
	incompatLargeDir   = 0x4000
	incompatInlineData = 0x8000
	incompatEncrypt    = 0x10000
	incompatCasefold   = 0x20000

	roSparseSuper  = 0x1
	roGDTCsum      = 0x10
	roBigalloc     = 0x200
	roMetadataCsum = 0x400
)

// incompatRead are the features without which a file system can't be understood, and which
// this package understands. Encryption and case folding are refused where something has them.
const incompatRead = incompatFiletype | incompatRecover | incompatMetaBG | incompatExtents | incompat64bit |
	incompatMMP | incompatFlexBG | incompatEAInode | incompatCsumSeed | incompatLargeDir | incompatInlineData |
	incompatEncrypt | incompatCasefold

// incompatNames are those that have a name and are not read.
var incompatNames = map[uint32]string{0x1: "compression", 0x1000: "dirdata"}

// checkFeatures refuses what is not read, by name.
func (s *Super) checkFeatures() error {
	if s.incompat&incompatJournalDev != 0 {
		return unsupported(0, "it is the journal of another file system")
	}
	unknown := s.incompat &^ incompatRead
	if unknown == 0 {
		return nil
	}
	var names []string
	for bit := uint32(1); bit != 0; bit <<= 1 {
		if unknown&bit == 0 {
			continue
		}
		name := incompatNames[bit]
		if name == "" {
			name = fmt.Sprintf("incompat bit %#x", bit)
		}
		names = append(names, name)
	}
	return unsupported(0, "feature %s", strings.Join(names, ", "))
}
