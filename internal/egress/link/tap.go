package link

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Of linux/if_tun.h: what the holder of a TAP can take over from the kernel.
const (
	offloadChecksum = 0x01 // TUN_F_CSUM
	offloadTCP4     = 0x02 // TUN_F_TSO4
	offloadTCP6     = 0x04 // TUN_F_TSO6
)

// openTAP opens the TAP of the calling thread's network namespace, and makes
// it where there is none.
func openTAP() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	if err := setTAP(fd); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "tap"), nil
}

func setTAP(fd int) error {
	ifr, err := unix.NewIfreq(Interface)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return fmt.Errorf("open TAP %s: %w", Interface, err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("keep TAP: %w", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, vnetHeaderLen); err != nil {
		return fmt.Errorf("set header of TAP: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloadChecksum|offloadTCP4|offloadTCP6); err != nil {
		return fmt.Errorf("set offloads of TAP: %w", err)
	}
	return nil
}

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
