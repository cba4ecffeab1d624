package gate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Proxy is somebody else's that intercepts TLS, running in the world.
type Proxy struct {
	URL string
	PID int
	CA  string // a file: whom its clients have to trust
}

// libraries is the environment in which programs find what was unpacked with
// them.
func libraries(dir string) []string {
	libs, _ := filepath.Glob(filepath.Join(dir, "usr/lib/*-linux-gnu*")) // the pattern is sound
	return append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libs, ":"),
		"PYTHONPATH="+filepath.Join(dir, "usr/lib/python3/dist-packages"), "PYTHONDONTWRITEBYTECODE=")
}

// run starts a proxy, and waits until it listens.
func (n *Internet) run(ctx context.Context, dir, address string, argv ...string) (pid int, err error) {
	log, err := os.OpenFile(filepath.Join(n.Dir, filepath.Base(argv[0])+".log"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = libraries(dir), n.Dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // it is killed
	n.later(func() error {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with its helpers, or it has ended
		<-ended
		return nil
	})
	ctx, cancel := context.WithTimeoutCause(ctx, answerWait, fmt.Errorf("%s does not listen", argv[0]))
	defer cancel()
	err = until(ctx, func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	select {
	case <-ended:
		err = fmt.Errorf("%s ended at once", argv[0])
	default:
	}
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		return 0, fmt.Errorf("%w: %s", err, said[max(0, len(said)-500):])
	}
	return cmd.Process.Pid, nil
}

// authority makes a CA for a proxy, in a file with its key.
func (n *Internet) authority(name string) (cert, both string, err error) {
	ca, err := sign(nil, "the CA of "+name)
	if err != nil {
		return "", "", err
	}
	dir := filepath.Join(n.Dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", "", err
	}
	cert, both = filepath.Join(dir, "mitmproxy-ca-cert.pem"), filepath.Join(dir, "mitmproxy-ca.pem")
	if err := os.WriteFile(cert, ca.pem, 0o644); err != nil {
		return "", "", err
	}
	return cert, both, os.WriteFile(both, append(ca.priv, ca.pem...), 0o644)
}

const squidConfig = `
http_port %[1]s ssl-bump tls-cert=%[2]s generate-host-certificates=on dynamic_cert_mem_cache_size=4MB
unlinkd_program %[3]s/usr/lib/squid/unlinkd
sslcrtd_program %[3]s/usr/lib/squid/security_file_certgen -s %[4]s/certs -M 4MB
ssl_bump bump all
tls_outgoing_options cafile=%[5]s
cache deny all
http_access allow all
access_log none
cache_store_log none
cache_log %[4]s/cache.log
pid_filename none
netdb_filename none
coredump_dir %[4]s
mime_table %[3]s/usr/share/squid/mime.conf
icon_directory %[3]s/usr/share/squid/icons
error_directory %[3]s/usr/share/squid/errors/templates
pinger_enable off
cache_effective_user nobody
visible_hostname squid.example
shutdown_lifetime 1 seconds
`

// Squid starts squid with ssl-bump and nothing that would slow it down: it
// neither caches nor logs.
func (n *Internet) Squid(ctx context.Context, dir string) (*Proxy, error) {
	const address = "127.0.0.1:3129"
	cert, both, err := n.authority("squid")
	if err != nil {
		return nil, err
	}
	own := filepath.Dir(both)
	make := exec.Command(filepath.Join(dir, "usr/lib/squid/security_file_certgen"), "-c", "-s", filepath.Join(own, "certs"), "-M", "4MB")
	make.Env = libraries(dir)
	if out, err := make.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("squid: %w: %s", err, out)
	}
	if err := open(own); err != nil {
		return nil, err
	}
	config := filepath.Join(own, "squid.conf")
	text := fmt.Sprintf(squidConfig, address, both, dir, own, n.Trusted)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	binary := filepath.Join(dir, "usr/sbin/squid")
	pid, err := n.run(ctx, dir, address, binary, "-N", "-d", "1", "-f", config)
	if err != nil {
		return nil, err
	}
	return &Proxy{PID: pid, URL: "http://" + address, CA: cert}, nil
}

// open lets everybody write below dir: squid gives up being root.
func open(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chmod(path, 0o777))
	})
}

// streaming has mitmproxy pass bodies on as they come, which it does not by
// itself.
const streaming = `
def requestheaders(flow):
    flow.request.stream = True

def responseheaders(flow):
    flow.response.stream = True
`

// Mitmproxy starts mitmproxy without a screen.
func (n *Internet) Mitmproxy(ctx context.Context, dir string) (*Proxy, error) {
	const address = "127.0.0.1:8081"
	cert, both, err := n.authority("mitmproxy")
	if err != nil {
		return nil, err
	}
	own := filepath.Dir(both)
	script := filepath.Join(own, "streaming.py")
	if err := os.WriteFile(script, []byte(streaming), 0o644); err != nil {
		return nil, err
	}
	python, program := "/usr/bin/python3", filepath.Join(dir, "usr/bin/mitmdump")
	pid, err := n.run(ctx, dir, address, python, program, "--quiet", "--listen-host", "127.0.0.1", "--listen-port", "8081", "--scripts", script,
		"--set", "confdir="+own, "--set", "ssl_verify_upstream_trusted_ca="+n.Trusted, "--set", "flow_detail=0")
	if err != nil {
		return nil, err
	}
	return &Proxy{PID: pid, URL: "http://" + address, CA: cert}, nil
}

// SquidVersion says what lies unpacked below dir.
func SquidVersion(dir string) string {
	return version(dir, filepath.Join(dir, "usr/sbin/squid"), "-v")
}

// MitmproxyVersion says what lies unpacked below dir.
func MitmproxyVersion(dir string) string {
	return version(dir, "/usr/bin/python3", filepath.Join(dir, "usr/bin/mitmdump"), "--version")
}

// version is the first line of what a program says of itself.
func version(dir string, argv ...string) string {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = libraries(dir)
	out, err := cmd.Output()
	if err != nil {
		return err.Error()
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// answerWait is how long a proxy may take until it listens.
const answerWait = 60 * time.Second

// until waits for a fact that nobody announces.
func until(ctx context.Context, fact func() bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !fact() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}
