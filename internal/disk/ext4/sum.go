package ext4

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
)

var le = binary.LittleEndian

var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// crc32c goes on with a checksum as the kernel does, which inverts it neither before nor after.
func crc32c(crc uint32, p []byte) uint32 { return ^crc32.Update(^crc, castagnoli(), p) }

func crc32cU32(crc, v uint32) uint32 { return crc32c(crc, le.AppendUint32(nil, v)) }

// zeros stands where a checksum is computed with its own field left out.
var zeros [4]byte

// crc16 is CRC-16 with the polynomial 0x8005, bits reversed.
func crc16(crc uint16, p []byte) uint16 {
	for _, b := range p {
		crc ^= uint16(b)
		for range 8 {
			if crc&1 != 0 {
				crc = crc>>1 ^ 0xa001
			} else {
				crc >>= 1
			}
		}
	}
	return crc
}

// crc32be is CRC-32 with the highest bit first, which journals of the first kind of checksum use.
func crc32be(crc uint32, p []byte) uint32 {
	table := crc32beTable()
	for _, b := range p {
		crc = crc<<8 ^ table[byte(crc>>24)^b]
	}
	return crc
}

var crc32beTable = sync.OnceValue(func() *[256]uint32 {
	var table [256]uint32
	for i := range table {
		crc := uint32(i) << 24
		for range 8 {
			if crc&(1<<31) != 0 {
				crc = crc<<1 ^ 0x04c11db7
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return &table
})
