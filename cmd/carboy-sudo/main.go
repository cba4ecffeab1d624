// Command carboy-sudo is sudo inside a sandbox that has it: it hands its
// standard files, arguments, directory and environment to the guest agent,
// passes signals on, and ends as the command did. It has no rights itself.
package main

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/carboy-sandbox/carboy/internal/guest/sudo/wire"
)

// forwarded are the signals that the command gets in place of this program.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGALRM, syscall.SIGUSR1, syscall.SIGUSR2,
}

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	code, err := run(signals)
	if err != nil {
		_, _ = os.Stderr.WriteString("sudo: " + err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

func run(signals <-chan os.Signal) (int, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	agent := os.NewFile(uintptr(fd), "agent")
	defer agent.Close()
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: wire.Address}); err != nil {
		return 0, errors.New("the sandbox's agent is out of reach: nobody becomes root here")
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	msg := wire.Request{Dir: dir, Args: os.Args[1:], Env: os.Environ()}.Encode()
	n, err := syscall.SendmsgN(fd, msg, syscall.UnixRights(standard()...), nil, 0)
	for err == nil && n < len(msg) {
		var more int
		more, err = agent.Write(msg[n:])
		n += more
	}
	if err != nil && !errors.Is(err, syscall.EPIPE) { // its answer says why it stopped to read
		return 0, errors.New("ask the sandbox's agent: " + err.Error())
	}
	go func() {
		for s := range signals {
			_, _ = agent.Write([]byte{byte(s.(syscall.Signal))})
		}
	}()
	return answer(agent)
}

// standard returns the standard files, with the null device for what is closed.
func standard() []int {
	fds := []int{0, 1, 2}
	for i := range fds {
		var st syscall.Stat_t
		if syscall.Fstat(i, &st) == nil {
			continue
		}
		if null, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0); err == nil {
			fds[i] = null
		}
	}
	return fds
}

// answer prints what the agent says, and returns the command's exit code.
func answer(agent io.Reader) (int, error) {
	text, err := io.ReadAll(agent)
	if err != nil && len(text) == 0 {
		return 0, errors.New("the sandbox's agent went away: " + err.Error())
	}
	end, ok := wire.ParseEnd(text)
	if !ok {
		return 0, errors.New("the sandbox's agent went away, and the command with it")
	}
	out := os.Stderr
	if end.Shown {
		out = os.Stdout
	}
	if end.Text != "" {
		_, _ = out.WriteString(strings.TrimSuffix(end.Text, "\n") + "\n")
	}
	return end.Code, nil
}
