// Serve runs a command in an internet where the APIs of language models are
// fakes: serve [-key KEY] [-scripts FILE] [-log DIR] -- COMMAND. Carboy's daemon,
// started in it with the resolver that serve names, finds them under their own
// names. SSL_CERT_FILE is set for the command. Each request is written to DIR,
// one file each, when it has been answered. A turn that is held goes on after
// the file DIR/release is made. It needs root, and reaches no other network.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/carboy-sandbox/carboy/test/fakemodel"
	"github.com/carboy-sandbox/carboy/test/internet"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func run() error {
	key := flag.String("key", "sk-ant-api03-real-key-of-a-fake-model-0123456789", "the credential that is wanted")
	scripts := flag.String("scripts", "", "a JSON file: [{\"Prompt\": ..., \"Steps\": [...]}]")
	log := flag.String("log", "", "the directory for what is received")
	flag.Parse()
	if flag.NArg() == 0 || *log == "" {
		return errors.New("say -log DIR and a command")
	}
	dir, err := filepath.Abs(*log) // the command may be elsewhere
	if err != nil {
		return err
	}
	s := fakemodel.NewServer(*key)
	if *scripts != "" {
		raw, err := os.ReadFile(*scripts)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(raw, &s.Scripts); err != nil {
			return err
		}
	}
	n, err := internet.New()
	if err != nil {
		return err
	}
	defer n.Close()
	if err := n.Serve(internet.A, internet.ByHost(s.Handlers()), s.Hosts()...); err != nil {
		return err
	}
	roots := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(roots, n.Roots(), 0o644); err != nil {
		return err
	}
	stop, recorded := make(chan struct{}), make(chan struct{})
	go func() { record(s, dir, stop); close(recorded) }()
	cmd := exec.Command(flag.Arg(0), flag.Args()[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+roots, "SSL_CERT_DIR=/nonexistent")
	fmt.Fprintf(os.Stderr, "serve: for carboy's config.json: {\"resolvers\": [\"%s:53\"]}\n", internet.Resolver)
	if err := n.Start(cmd); err != nil {
		return err
	}
	err = cmd.Wait()
	close(stop)
	<-recorded
	for _, q := range n.Asked() {
		fmt.Fprintf(os.Stderr, "serve: asked for %s %s, served: %v\n", q.Type, q.Name, q.Has)
	}
	return err
}

// record writes down requests as they come, and releases turns.
func record(s *fakemodel.Server, dir string, stop chan struct{}) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for written, ended := 0, false; !ended; {
		select {
		case <-stop:
			ended = true
		case <-tick.C:
		}
		for _, r := range s.Requests("")[written:] {
			if r.Status == 0 && !ended {
				break
			}
			head, _ := json.MarshalIndent(r.Header, "", " ") // strings alone
			text := fmt.Sprintf("%s %s%s\n%d\n%s\n%s\n", r.Method, r.Host, r.Path, r.Status, head, r.Body)
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d", written)), []byte(text), 0o600); err != nil {
				fmt.Fprintln(os.Stderr, "serve:", err)
			}
			written++
		}
		if s.Held() > 0 && os.Remove(filepath.Join(dir, "release")) == nil {
			s.Release()
		}
	}
}
