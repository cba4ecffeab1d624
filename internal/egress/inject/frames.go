package inject

import "encoding/binary"

// frames searches a WebSocket stream: the payloads, unmasked, of messages as
// one text, and of each control frame by itself, since one may stand between
// the parts of a message.
type frames struct {
	m        *matcher
	messages *searcher
	control  *searcher // of the control frame that is being read
	at       offsets   // from messages' payload to the stream

	head    [14]byte // of the frame that is being read
	headLen int
	left    uint64 // of its payload
	mask    [4]byte
	masked  int // how much of the payload was unmasked, modulo 4
	buf     []byte
}

func newFrames(m *matcher) *frames {
	return &frames{m: m, messages: newSearcher(m), buf: make([]byte, 0, 4<<10)}
}

// feed implements scanner.
func (f *frames) feed(b []byte) outcome {
	for len(b) > 0 {
		if f.left == 0 {
			f.head[f.headLen] = b[0]
			f.headLen++
			b = b[1:]
			f.note(0, 1)
			if o := f.begin(); o != clean {
				return o
			}
			continue
		}
		n := int(min(uint64(len(b)), f.left, uint64(cap(f.buf))))
		if o := f.payload(b[:n]); o != clean {
			return o
		}
		b = b[n:]
	}
	return clean
}

// note keeps track of where the payload of messages is in the stream.
func (f *frames) note(view, raw int) { f.at.jump(view, raw, f.messages.back()) }

// begin looks whether the head is whole.
func (f *frames) begin() outcome {
	h := f.head[:f.headLen]
	if len(h) < 2 {
		return clean
	}
	// Reserved bits mean an extension, and none was agreed on.
	if h[0]&0x70 != 0 {
		return garbled
	}
	need, size := 2, uint64(h[1]&0x7f)
	switch size {
	case 126:
		need = 4
	case 127:
		need = 10
	}
	length := need
	if h[1]&0x80 != 0 {
		need += 4
	}
	if len(h) < need {
		return clean
	}
	switch length {
	case 4:
		size = uint64(binary.BigEndian.Uint16(h[2:]))
	case 10:
		size = binary.BigEndian.Uint64(h[2:])
	}
	f.mask = [4]byte{}
	copy(f.mask[:], h[length:need])
	f.left, f.headLen, f.masked, f.control = size, 0, 0, nil
	if h[0]&0x08 != 0 {
		if size > 125 {
			return garbled
		}
		f.control = newSearcher(f.m)
	}
	return clean
}

// payload searches b, a part of one frame's payload.
func (f *frames) payload(b []byte) outcome {
	f.buf = f.buf[:len(b)]
	for i, c := range b {
		f.buf[i] = c ^ f.mask[(f.masked+i)&3]
	}
	f.masked = (f.masked + len(b)) & 3
	f.left -= uint64(len(b))
	if f.control == nil {
		o := f.messages.feed(f.buf)
		f.note(len(b), len(b))
		return o
	}
	f.note(0, len(b))
	return f.control.feed(f.buf)
}

// held implements scanner.
func (f *frames) held() int {
	held := 0
	if h := f.messages.held(); h > 0 {
		held = f.at.since(h)
	}
	if f.control != nil && f.left > 0 {
		held = max(held, f.control.held())
	}
	return held
}

// end implements scanner.
func (f *frames) end() outcome {
	if o := f.messages.end(); o != clean {
		return o
	}
	if f.control != nil {
		if o := f.control.end(); o != clean {
			return o
		}
	}
	if f.left > 0 || f.headLen > 0 {
		return garbled
	}
	return clean
}
