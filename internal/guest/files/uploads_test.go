package files_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// send uploads a file. It may be called from any goroutine.
func (g *guest) send(name string, body io.Reader) error {
	req, err := http.NewRequestWithContext(g.t.Context(), "POST", g.url+"/files?path="+name, body)
	if err != nil {
		return err
	}
	req.Header = octets.Clone()
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// TestUploadsAtOnce lets several clients write one file: in the end it has what
// one of them sent.
func TestUploadsAtOnce(t *testing.T) {
	g := newGuest(t)
	for round := range 10 {
		name := fmt.Sprint("same", round)
		var all errgroup.Group
		for i := range 4 {
			all.Go(func() error {
				body := strings.Repeat(string(rune('a'+i)), (4-i)<<19)
				return g.send(name, strings.NewReader(body))
			})
		}
		must(t, all.Wait())
		got := g.text(name)
		if want := strings.Repeat(got[:1], (4-int(got[0]-'a'))<<19); got != want {
			t.Fatalf("round %d: %d bytes, not those of one upload", round, len(got))
		}
	}
}

// TestUploadAfterOneThatFails starts an upload while another, which made the
// file, is under way: the first fails and takes the file away, and the second
// is there all the same.
func TestUploadAfterOneThatFails(t *testing.T) {
	g := newGuest(t)
	pr, pw := io.Pipe()
	first := make(chan struct{})
	go func() {
		defer close(first)
		if g.send("f", pr) == nil {
			t.Error("an upload that broke off was taken for whole")
		}
	}()
	_, err := pw.Write(make([]byte, 2<<20))
	must(t, err)
	began := func() bool { st, err := os.Stat(g.path("f")); return err == nil && st.Size() > 0 }
	if !patience.Until(20*time.Second, began) { // it is the first one's turn
		t.Fatal("the first upload never began")
	}
	second := make(chan error, 1)
	go func() { second <- g.send("f", strings.NewReader("second")) }()
	pw.CloseWithError(errors.New("the client is gone"))
	<-first
	must(t, <-second)
	if got := g.text("f"); got != "second" {
		t.Errorf("the file has %q", got)
	}
}

func TestDeniedNamesTheUser(t *testing.T) {
	g := newGuest(t)
	resp, body := g.do("GET", "/files", at("/root/x"), nil, nil)
	if resp.StatusCode != 403 || !strings.Contains(body, "permission denied to user") || !strings.Contains(body, "such as root") {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
}
