package process_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	envd "github.com/carboy-sandbox/carboy/api/envd/process"
	"github.com/carboy-sandbox/carboy/api/envd/process/processconnect"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// flood is what a command writes: more than its journal, and all buffers on the way, hold.
const flood = 24_000_000

// reading is a reader of E2B's protocol on a connection of its own.
type reading struct {
	*connect.ServerStreamForClient[envd.ConnectResponse]
	got  int
	last string // of the output
	end  bool
}

// connect attaches a reader, which has read nothing but the headers.
func (w *world) connect(ctx context.Context, tag string) *reading {
	w.t.Helper()
	own := &http.Transport{}
	w.t.Cleanup(own.CloseIdleConnections)
	stream, err := processconnect.NewProcessClient(&http.Client{Transport: own}, w.url).Connect(ctx,
		connect.NewRequest(&envd.ConnectRequest{Process: &envd.ProcessSelector{Selector: &envd.ProcessSelector_Tag{Tag: tag}}}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = stream.Close() })
	stream.ResponseHeader()
	return &reading{ServerStreamForClient: stream}
}

// rest reads to the end.
func (r *reading) rest() error {
	for r.Receive() {
		data := r.Msg().GetEvent().GetData()
		out := append(data.GetStdout(), data.GetPty()...)
		r.got += len(out)
		r.last = (r.last + string(out))[max(0, len(r.last)+len(out)-1000):]
		r.end = r.end || r.Msg().GetEvent().GetEnd() != nil
	}
	return r.Err()
}

// A reader that reads nothing is left behind, and told so; those beside it get all. Where there
// is nobody else, the command waits for it, and it loses nothing.
func TestStuckReader(t *testing.T) {
	for name, c := range map[string]struct {
		others   int
		terminal bool
	}{
		"beside-others":               {others: 3},
		"beside-others-at-a-terminal": {others: 1, terminal: true},
		"alone":                       {},
	} {
		t.Run(name, func(t *testing.T) {
			w := open(t, setup{})
			ctx, cancel := context.WithTimeout(t.Context(), patience.For(time.Minute))
			defer cancel()
			cmd := sh("read go; head -c 24000000 /dev/zero; echo the end")
			cmd.Stdin, cmd.Tag = !c.terminal, "flood"
			if c.terminal {
				cmd.Terminal = &guestv1.Terminal{Cols: 80, Rows: 24}
			}
			w.detached("a", cmd)
			stuck := w.connect(ctx, "flood")
			var others sync.WaitGroup
			for range c.others {
				r := w.connect(ctx, "flood")
				others.Go(func() {
					if err := r.rest(); err != nil || !r.end || r.got < flood || !strings.Contains(r.last, "the end") {
						t.Errorf("a reader beside it got %d bytes, the end: %t, %v", r.got, r.end, err)
					}
				})
			}
			if _, err := w.exec.WriteInput(ctx, connect.NewRequest(&guestv1.WriteInputRequest{Id: "a", Data: []byte("go\n")})); err != nil {
				t.Fatal(err)
			}
			others.Wait()
			err := stuck.rest()
			switch {
			case c.others == 0:
				if err != nil || !stuck.end || stuck.got < flood {
					t.Errorf("alone it got %d bytes, the end: %t, %v", stuck.got, stuck.end, err)
				}
			case c.terminal:
				if err != nil || !stuck.end || stuck.got >= flood {
					t.Errorf("the stuck one got %d bytes, the end: %t, %v", stuck.got, stuck.end, err)
				}
			default:
				if connect.CodeOf(err) != connect.CodeDataLoss || !strings.Contains(err.Error(), "bytes of stdout were not read in time") {
					t.Errorf("the stuck one is told %v", err)
				}
			}
		})
	}
}
