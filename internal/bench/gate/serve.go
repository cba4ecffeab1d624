package gate

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// serveHTTP serves both names with one certificate and the same answers.
func (n *Internet) serveHTTP() error {
	ca, err := sign(nil, "the root of a world for measuring")
	if err != nil {
		return err
	}
	n.Roots = filepath.Join(n.Dir, "roots.pem")
	if err := os.WriteFile(n.Roots, ca.pem, 0o644); err != nil {
		return err
	}
	// Gates and proxies trust as many as they would elsewhere.
	machine, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	n.Trusted = filepath.Join(n.Dir, "trusted.pem")
	if err := os.WriteFile(n.Trusted, append(machine, ca.pem...), 0o644); err != nil {
		return err
	}
	leaf, err := sign(ca, NameRead, NameRead, NameUnread)
	if err != nil {
		return err
	}
	cert, err := leaf.forTLS()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /small", small)
	mux.HandleFunc("GET /down", down)
	mux.HandleFunc("POST /up", up)
	mux.HandleFunc("GET /events", events)
	server := &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
	for _, a := range []string{addrRead, addrUnread} {
		l, err := net.Listen("tcp", a+":443")
		if err != nil {
			return err
		}
		go server.ServeTLS(l, "", "") //nolint:errcheck // it ends with Close
	}
	n.later(server.Close)
	return nil
}

var answer = make([]byte, 200)

func small(rw http.ResponseWriter, _ *http.Request) {
	rw.Header().Set("Content-Type", "application/octet-stream")
	rw.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = rw.Write(answer)
}

var piece = make([]byte, 256<<10)

// down answers with as many bytes as are asked for.
func down(rw http.ResponseWriter, r *http.Request) {
	n, _ := strconv.ParseInt(r.FormValue("bytes"), 10, 64)
	rw.Header().Set("Content-Type", "application/octet-stream")
	rw.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	for n > 0 {
		k, err := rw.Write(piece[:min(n, int64(len(piece)))])
		if err != nil {
			return
		}
		n -= int64(k)
	}
}

// up answers with how many bytes came.
func up(rw http.ResponseWriter, r *http.Request) {
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, make([]byte, 256<<10))
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(rw, strconv.FormatInt(n, 10))
}

// events streams as many as are asked for, at equal distances.
func events(rw http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.FormValue("n"))
	gap, err2 := time.ParseDuration(r.FormValue("gap"))
	if errors.Join(err, err2) != nil {
		http.Error(rw, "n and gap are wanted", http.StatusBadRequest)
		return
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(rw)
	tick := time.NewTicker(max(gap, time.Microsecond))
	defer tick.Stop()
	for i := range n {
		if i > 0 {
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
		if _, err := io.WriteString(rw, "data: event "+strconv.Itoa(i)+" at "+strconv.FormatInt(time.Now().UnixNano(), 10)+"\n\n"); err != nil {
			return
		}
		if err := flush.Flush(); err != nil {
			return
		}
	}
}
