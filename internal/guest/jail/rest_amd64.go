package jail

import "encoding/binary"

// restCode calls munmap(from, size), close(fd), and then ppoll for nothing.
func restCode(from, size uint64, fd uint32) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{0x48, 0xbf}, from)   // mov rdi, from
	b = binary.LittleEndian.AppendUint64(append(b, 0x48, 0xbe), size) // mov rsi, size
	b = append(b, 0xb8, 0x0b, 0x00, 0x00, 0x00)                       // mov eax, 11: munmap
	b = append(b, 0x0f, 0x05)                                         // syscall
	b = binary.LittleEndian.AppendUint32(append(b, 0xbf), fd)         // mov edi, fd
	b = append(b, 0xb8, 0x03, 0x00, 0x00, 0x00)                       // mov eax, 3: close
	b = append(b, 0x0f, 0x05)                                         // syscall
	return append(b,
		0x31, 0xff, // xor edi, edi
		0x31, 0xf6, // xor esi, esi
		0x31, 0xd2, // xor edx, edx
		0x45, 0x31, 0xd2, // xor r10d, r10d
		0x45, 0x31, 0xc0, // xor r8d, r8d
		0xb8, 0x0f, 0x01, 0x00, 0x00, // mov eax, 271: ppoll
		0x0f, 0x05, // syscall
		0xeb, 0xeb, // jmp to the first xor
	)
}
