package link

import (
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
