package jail

import "encoding/binary"

// restCode calls munmap(from, size), close(fd), and then ppoll for nothing.
func restCode(from, size uint64, fd uint32) []byte {
	var b []byte
	for _, instruction := range []uint32{
		0x58000200, // ldr x0, from
		0x58000221, // ldr x1, size
		0xd2801ae8, // mov x8, 215: munmap
		0xd4000001, // svc 0
		0x58000200, // ldr x0, fd
		0xd2800728, // mov x8, 57: close
		0xd4000001, // svc 0
		0xd2800000, // mov x0, 0
		0xd2800001, // mov x1, 0
		0xd2800002, // mov x2, 0
		0xd2800003, // mov x3, 0
		0xd2800004, // mov x4, 0
		0xd2800928, // mov x8, 73: ppoll
		0xd4000001, // svc 0
		0x17fffff9, // b to the first mov of 0
		0xd503201f, // nop, so that what follows is aligned
	} {
		b = binary.LittleEndian.AppendUint32(b, instruction)
	}
	for _, value := range []uint64{from, size, uint64(fd)} {
		b = binary.LittleEndian.AppendUint64(b, value)
	}
	return b
}
