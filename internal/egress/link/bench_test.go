package link_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/egress/link"
)

func BenchmarkCreate(b *testing.B) {
	needRoot(b)
	for b.Loop() {
		d, err := link.Create(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		d.Close()
		b.StartTimer()
	}
}

func benchWorld(b *testing.B, mtu int, h link.Handler) *world {
	b.Helper()
	needRoot(b)
	dev, err := link.CreateMTU(context.Background(), mtu)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { dev.NetNS.Close() })
	s, err := link.NewStackMTU(dev.TAP, uint32(mtu), link.Options{Handler: h})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	s.Start()
	return &world{b, dev, s}
}

var mtus = []int{1500, 9000, link.MTU}

// BenchmarkRequest is a small question and a small answer, over a connection
// that stays.
func BenchmarkRequest(b *testing.B) {
	for _, mtu := range mtus {
		b.Run(fmt.Sprint(mtu), func(b *testing.B) {
			w := benchWorld(b, mtu, echo())
			c := w.mustDial("tcp", elsewhere4)
			request, answer := make([]byte, 200), make([]byte, 200)
			for b.Loop() {
				if _, err := c.Write(request); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, answer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkConnect is a connection opened and closed.
func BenchmarkConnect(b *testing.B) {
	w := benchWorld(b, link.MTU, &handler{tcp: func(r *link.TCPRequest) {
		if c, err := r.Accept(); err == nil {
			c.Close()
		}
	}})
	err := w.inside(func() error {
		for b.Loop() {
			c, err := net.Dial("tcp", elsewhere4)
			if err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRefuse is a connection that is not allowed.
func BenchmarkRefuse(b *testing.B) {
	w := benchWorld(b, link.MTU, &handler{})
	err := w.inside(func() error {
		for b.Loop() {
			if c, err := net.Dial("tcp", elsewhere4); err == nil {
				c.Close()
				return errors.New("it was let through")
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

const piece = 256 << 10

func BenchmarkUpload(b *testing.B) {
	for _, mtu := range mtus {
		b.Run(fmt.Sprint(mtu), func(b *testing.B) {
			got := make(chan int64, 1)
			w := benchWorld(b, mtu, &handler{tcp: func(r *link.TCPRequest) {
				c, err := r.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				n, _ := io.CopyBuffer(io.Discard, struct{ io.Reader }{c}, make([]byte, piece))
				got <- n
			}})
			c := w.mustDial("tcp", elsewhere4)
			buf := make([]byte, piece)
			b.SetBytes(piece)
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
			}
			_ = c.(*net.TCPConn).CloseWrite()
			<-got
		})
	}
}

func BenchmarkDownload(b *testing.B) {
	for _, mtu := range mtus {
		b.Run(fmt.Sprint(mtu), func(b *testing.B) {
			w := benchWorld(b, mtu, &handler{tcp: func(r *link.TCPRequest) {
				c, err := r.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				buf := make([]byte, piece)
				for {
					if _, err := c.Write(buf); err != nil {
						return
					}
				}
			}})
			c := w.mustDial("tcp", elsewhere4)
			buf := make([]byte, piece)
			b.SetBytes(piece)
			for b.Loop() {
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
