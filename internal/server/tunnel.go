package server

import "io"

const (
	tunnelWait = 1 << 10 // what a connection that waits holds
	tunnelMore = 32 << 10
)

// tunnels are buffers for connections that have more to say.
var tunnels = bufferPool{size: tunnelMore}

// tunnel is a guest's end of a connection that was upgraded. Most of them wait
// most of the time, and a small buffer is enough for that.
type tunnel struct{ io.ReadWriteCloser }

// WriteTo implements io.WriterTo.
func (t *tunnel) WriteTo(w io.Writer) (int64, error) { return pump(w, t.ReadWriteCloser) }

// ReadFrom implements io.ReaderFrom.
func (t *tunnel) ReadFrom(r io.Reader) (int64, error) { return pump(t.ReadWriteCloser, r) }

// pump copies as io.Copy does, but waits with a small buffer, and takes a
// large one only for as long as there is enough to fill the small one.
func pump(dst io.Writer, src io.Reader) (n int64, err error) {
	small := make([]byte, tunnelWait)
	var large []byte
	defer func() {
		if large != nil {
			tunnels.Put(large)
		}
	}()
	buf := small
	for {
		nr, rerr := src.Read(buf)
		if nr > 0 {
			nw, werr := dst.Write(buf[:nr])
			n += int64(nw)
			if werr != nil {
				return n, werr
			}
		}
		switch {
		case rerr == io.EOF:
			return n, nil
		case rerr != nil:
			return n, rerr
		case large == nil && nr == len(small):
			large = tunnels.Get()
			buf = large
		case large != nil && nr < len(small):
			tunnels.Put(large)
			large, buf = nil, small
		}
	}
}
