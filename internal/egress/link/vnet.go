package link

import "encoding/binary"

// vnetHeaderLen is the length of what the kernel puts before each frame of
// the TAP, and wants there: struct virtio_net_hdr.
const vnetHeaderLen = 10

// Its flags and kinds that are used here.
const (
	vnetNeedsChecksum = 1 // the transport checksum is yet to be computed
	vnetDataValid     = 2 // it was verified

	vnetWhole = 0 // one packet
	vnetTCP4  = 1 // one that stands for many, of size bytes each
	vnetTCP6  = 4
	vnetECN   = 0x80
)

// A vnetHeader is struct virtio_net_hdr, in the machine's byte order.
type vnetHeader struct {
	flags, kind               uint8
	headerLen, size           uint16
	checksumFrom, checksumOff uint16
}

func parseVnet(b []byte) vnetHeader {
	e := binary.NativeEndian
	return vnetHeader{
		flags: b[0], kind: b[1],
		headerLen: e.Uint16(b[2:]), size: e.Uint16(b[4:]),
		checksumFrom: e.Uint16(b[6:]), checksumOff: e.Uint16(b[8:]),
	}
}

func (h vnetHeader) put(b []byte) {
	e := binary.NativeEndian
	b[0], b[1] = h.flags, h.kind
	e.PutUint16(b[2:], h.headerLen)
	e.PutUint16(b[4:], h.size)
	e.PutUint16(b[6:], h.checksumFrom)
	e.PutUint16(b[8:], h.checksumOff)
}
