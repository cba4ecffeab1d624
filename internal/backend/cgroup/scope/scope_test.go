package scope_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup/scope"
)

// fakeManager is a systemd of one user's, with the answers of a test.
type fakeManager struct {
	t     *testing.T
	start []string // results of StartTransientUnit, in turn: "done", "failed", or an error's name
	join  string   // an error's name, or "": it works
	calls []string
	ended chan struct{}
}

// listen serves one connection at dir's socket.
func (f *fakeManager) listen(dir string) {
	if err := os.Mkdir(filepath.Join(dir, "systemd"), 0o700); err != nil {
		f.t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "systemd", "private"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.ended = make(chan struct{})
	go func() {
		defer close(f.ended)
		if c, err := l.Accept(); err == nil {
			f.serve(c)
			c.Close()
		}
	}()
	f.t.Cleanup(func() { l.Close(); <-f.ended })
}

func (f *fakeManager) serve(c net.Conn) {
	r := bufio.NewReader(c)
	_, _ = r.ReadByte()
	for {
		line, err := r.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "BEGIN") {
			break
		}
		answer := "ERROR"
		switch strings.Fields(line)[0] {
		case "DATA":
			answer = "OK 1234deadbeef"
		case "AUTH":
			if answer = "REJECTED EXTERNAL"; strings.Contains(line, "EXTERNAL") {
				answer = "DATA"
			}
		}
		fmt.Fprint(c, answer+"\r\n")
	}
	for {
		m, err := dbus.DecodeMessage(r)
		if err != nil {
			return
		}
		f.answer(c, m)
	}
}

func (f *fakeManager) answer(c net.Conn, m *dbus.Message) {
	member, _ := m.Headers[dbus.FieldMember].Value().(string)
	f.calls = append(f.calls, member)
	outcome := f.join
	if member == "StartTransientUnit" {
		outcome, f.start = f.start[0], f.start[1:]
	} else {
		f.calls[len(f.calls)-1] += " " + m.Body[1].(string)
	}
	reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(m.Serial()), dbus.FieldSender: dbus.MakeVariant("org.freedesktop.systemd1"),
	}}
	job := dbus.ObjectPath("/org/freedesktop/systemd1/job/7")
	switch {
	case strings.Contains(outcome, "."):
		reply.Type = dbus.TypeError
		reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant(outcome)
		f.send(c, reply, outcome)
		return
	case member == "StartTransientUnit":
		f.send(c, reply, job)
	default:
		f.send(c, reply)
		return
	}
	f.send(c, &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/systemd1")), dbus.FieldInterface: dbus.MakeVariant("org.freedesktop.systemd1.Manager"),
		dbus.FieldMember: dbus.MakeVariant("JobRemoved"), dbus.FieldSender: dbus.MakeVariant("org.freedesktop.systemd1"),
	}}, uint32(7), job, "carboy-x.scope", outcome)
}

func (f *fakeManager) send(c net.Conn, m *dbus.Message, body ...any) {
	m.Body = body
	if len(body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	if err := m.EncodeTo(c, binary.LittleEndian); err != nil {
		f.t.Error(err)
	}
}

func TestEnter(t *testing.T) {
	const exists = "org.freedesktop.systemd1.UnitExists"
	inside, outside := "0::/user.slice/carboy-x.scope\n", "0::/user.slice/session-1.scope\n"
	tests := []struct {
		name  string
		start []string
		join  string
		own   string
		calls string
		fails string
	}{
		{name: "made", start: []string{"done"}, own: inside, calls: "StartTransientUnit"},
		{name: "job-fails", start: []string{"failed", "failed", "failed"}, own: outside, calls: "StartTransientUnit,StartTransientUnit,StartTransientUnit", fails: "job is failed"},
		{name: "joined", start: []string{exists}, own: "0::/user.slice/carboy-x.scope/carboy.daemon\n", calls: "StartTransientUnit,AttachProcessesToUnit /carboy.daemon"},
		{
			name: "gone-meanwhile", start: []string{exists, "done"}, join: "org.freedesktop.systemd1.NoSuchUnit", own: inside,
			calls: "StartTransientUnit,AttachProcessesToUnit /carboy.daemon,AttachProcessesToUnit ,StartTransientUnit",
		},
		{name: "not-in-it", start: []string{"done"}, own: outside, calls: "StartTransientUnit", fails: "is not in it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "scope") // short: it is a socket's
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			proc := t.TempDir()
			if err := errors.Join(os.Mkdir(filepath.Join(proc, "self"), 0o755), os.WriteFile(filepath.Join(proc, "self/cgroup"), []byte(tt.own), 0o644)); err != nil {
				t.Fatal(err)
			}
			f := &fakeManager{t: t, start: tt.start, join: tt.join}
			f.listen(dir)
			err = scope.Enter(t.Context(), scope.Options{RuntimeDirs: []string{"", "/nonexistent", dir}, Name: "carboy-x", Proc: proc})
			if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("err = %v, want %q", err, tt.fails)
			}
			<-f.ended
			if got := strings.Join(f.calls, ","); got != tt.calls {
				t.Errorf("calls = %s, want %s", got, tt.calls)
			}
		})
	}
}

func TestEnterWithoutManager(t *testing.T) {
	dir := t.TempDir()
	err := scope.Enter(t.Context(), scope.Options{RuntimeDirs: []string{dir}, Name: "carboy-x"})
	if !errors.Is(err, scope.ErrNone) {
		t.Errorf("err = %v, want %v", err, scope.ErrNone)
	}
}

func TestLingers(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "var/lib/systemd/linger/ann"), 0o755); err != nil {
		t.Fatal(err)
	}
	if !scope.Lingers(root, "ann") || scope.Lingers(root, "bob") {
		t.Error("want ann alone")
	}
}
