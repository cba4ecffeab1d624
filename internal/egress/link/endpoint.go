package link

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// An endpoint carries packets between the TAP and the stack. To the stack it
// is a link without link addresses, so that nothing has to be resolved: the
// two that there are go into each frame here.
type endpoint struct {
	file *os.File
	raw  syscall.RawConn
	mtu  uint32

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher // guarded by mu

	dropped func(*frame) // called by the reading goroutine
}

var (
	_ stack.LinkEndpoint = (*endpoint)(nil)
	_ stack.GSOEndpoint  = (*endpoint)(nil)
)

// newEndpoint takes tap over.
func newEndpoint(tap *os.File, mtu uint32, dropped func(*frame)) (*endpoint, error) {
	file, err := polled(tap)
	if err != nil {
		return nil, fmt.Errorf("take the TAP over: %w", err)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &endpoint{file: file, raw: raw, mtu: mtu, dropped: dropped}, nil
}

// polled returns tap's description under a descriptor that the runtime waits
// for without keeping a thread, however tap came to be. It closes tap.
func polled(tap *os.File) (*os.File, error) {
	defer tap.Close()
	conn, err := tap.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, inner := -1, error(nil)
	err = conn.Control(func(old uintptr) {
		if fd, inner = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); inner == nil {
			inner = unix.SetNonblock(fd, true)
		}
	})
	if err := errors.Join(err, inner); err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, err
	}
	return os.NewFile(uintptr(fd), "tap"), nil
}

// keepWhole is the length from which on a frame keeps the buffer that it was
// read into; shorter ones are copied out.
const keepWhole = 32 << 10

// run reads frames until the TAP is closed or fails.
func (e *endpoint) run() error {
	head := make([]byte, headLen)
	// The size is the largest for which buffers are used again. A packet is
	// at most one byte shorter.
	view := buffer.NewViewSize(maxPacket + 1)
	defer func() { view.Release() }()
	into := [][]byte{head, view.AsSlice()}
	n, readErr := 0, error(nil)
	try := func(fd uintptr) bool {
		n, readErr = unix.Readv(int(fd), into)
		return readErr != unix.EAGAIN
	}
	for {
		if err := e.raw.Read(try); err != nil {
			return err
		}
		switch {
		case readErr == unix.EINTR:
			continue
		case readErr != nil:
			return os.NewSyscallError("read", readErr)
		case n == 0:
			return os.ErrClosed
		}
		f := read(head[:min(n, headLen)], view.AsSlice()[:max(n-headLen, 0)], int(e.mtu))
		if f.reason != passed {
			e.dropped(&f)
			continue
		}
		if len(f.packet) < keepWhole {
			e.deliver(f.number, buffer.MakeWithData(f.packet))
			continue
		}
		view.CapLength(len(f.packet))
		e.deliver(f.number, buffer.MakeWithView(view))
		view = buffer.NewViewSize(maxPacket + 1)
		into[1] = view.AsSlice()
	}
}

func (e *endpoint) deliver(number tcpip.NetworkProtocolNumber, payload buffer.Buffer) {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: payload})
	defer pkt.DecRef()
	e.mu.RLock()
	d := e.dispatcher
	e.mu.RUnlock()
	if d != nil {
		d.DeliverNetworkPacket(number, pkt)
	}
}

// An outgoing is what one frame is written from.
type outgoing struct {
	head   [headLen]byte
	slices [][]byte
}

var outgoings = sync.Pool{New: func() any { return &outgoing{slices: make([][]byte, 0, 16)} }}

// WritePackets writes packets to the sandbox. One that the interface can't
// take is lost, as on any link.
func (e *endpoint) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	written := 0
	for _, pkt := range list.AsSlice() {
		if err := e.writePacket(pkt); err != nil {
			if written > 0 {
				return written, nil
			}
			return 0, err
		}
		written++
	}
	return written, nil
}

func (e *endpoint) writePacket(pkt *stack.PacketBuffer) tcpip.Error {
	o := outgoings.Get().(*outgoing)
	defer o.free()
	h := vnetHeader{}
	if gso := pkt.GSOOptions; gso.Type != stack.GSONone {
		h.headerLen = uint16(ethernetLen + pkt.HeaderSize())
		if gso.NeedsCsum {
			h.flags = vnetNeedsChecksum
			h.checksumFrom, h.checksumOff = ethernetLen+gso.L3HdrLen, gso.CsumOffset
		}
		if pkt.Data().Size() > int(gso.MSS) {
			h.kind, h.size = vnetTCP4, gso.MSS
			if gso.Type == stack.GSOTCPv6 {
				h.kind = vnetTCP6
			}
		}
	}
	o.start(h, pkt.NetworkProtocolNumber)
	o.slices = append(o.slices, pkt.AsSlices()...)
	return e.write(o)
}

// start puts in front what the frame begins with.
func (o *outgoing) start(h vnetHeader, number tcpip.NetworkProtocolNumber) {
	h.put(o.head[:])
	eth := o.head[vnetHeaderLen:]
	copy(eth, guestMAC[:])
	copy(eth[6:], gateMAC[:])
	eth[12], eth[13] = byte(number>>8), byte(number)
	o.slices = append(o.slices[:0], o.head[:])
}

func (o *outgoing) free() {
	clear(o.slices)
	outgoings.Put(o)
}

func (e *endpoint) write(o *outgoing) tcpip.Error {
	var inner error
	err := e.raw.Control(func(fd uintptr) {
		for {
			if _, inner = unix.Writev(int(fd), o.slices); inner != unix.EINTR {
				return
			}
		}
	})
	switch {
	case err != nil:
		return &tcpip.ErrClosedForSend{}
	case inner != nil:
		return &tcpip.ErrNoBufferSpace{}
	}
	return nil
}

// inject writes an IP packet that is whole.
func (e *endpoint) inject(number tcpip.NetworkProtocolNumber, packet []byte) {
	o := outgoings.Get().(*outgoing)
	defer o.free()
	o.start(vnetHeader{}, number)
	o.slices = append(o.slices, packet)
	_ = e.write(o)
}

// close ends run.
func (e *endpoint) close() error { return e.file.Close() }

// Attach implements stack.NetworkLinkEndpoint.
func (e *endpoint) Attach(d stack.NetworkDispatcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dispatcher = d
}

// IsAttached implements stack.NetworkLinkEndpoint.
func (e *endpoint) IsAttached() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.dispatcher != nil
}

// Capabilities says that the filter has verified all checksums.
func (e *endpoint) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

// GSOMaxSize is the length of the packets that stand for many.
func (e *endpoint) GSOMaxSize() uint32 { return 1 << 16 }

// SupportedGSO says that the kernel cuts such packets.
func (e *endpoint) SupportedGSO() stack.SupportedGSO { return stack.HostGSOSupported }

// MTU implements stack.NetworkLinkEndpoint.
func (e *endpoint) MTU() uint32 { return e.mtu }

// MaxHeaderLength is 0: the headers of the link are written apart.
func (e *endpoint) MaxHeaderLength() uint16 { return 0 }

// What follows has no meaning for this link.

// SetMTU does nothing: the MTU is that of the device.
func (e *endpoint) SetMTU(uint32) {}

// LinkAddress is empty.
func (e *endpoint) LinkAddress() tcpip.LinkAddress { return "" }

// SetLinkAddress does nothing.
func (e *endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Wait does nothing: who called run waits for it.
func (e *endpoint) Wait() {}

// ARPHardwareType says that there is no ARP.
func (e *endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader does nothing.
func (e *endpoint) AddHeader(*stack.PacketBuffer) {}

// ParseHeader does nothing.
func (e *endpoint) ParseHeader(*stack.PacketBuffer) bool { return true }

// Close does nothing: who made the endpoint closes it.
func (e *endpoint) Close() {}

// SetOnCloseAction does nothing.
func (e *endpoint) SetOnCloseAction(func()) {}
