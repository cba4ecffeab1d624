package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/program/order"
)

// boxListen is where LangBot looks for its runtime.
const boxListen = "127.0.0.1:5410"

// asLangBot has a daemon serve LangBot as its Box runtime. What flags say stands
// above the configuration.
func asLangBot(cfg *daemon.Config, o *order.LangBot) error {
	b := &cfg.Box
	on := true
	b.Enabled = &on
	for _, f := range []struct {
		to    *string
		value string
	}{
		{&b.Listen, o.Listen},
		{&b.HostRoot, o.HostRoot},
		{&b.Profile, o.Profile},
		{&b.Isolation, o.Isolation},
		{&b.ControlTokenFile, o.ControlTokenFile},
		{&b.TLSCert, o.TLSCert},
		{&b.TLSKey, o.TLSKey},
	} {
		if f.value != "" {
			*f.to = f.value
		}
	}
	if o.MountRoots != nil {
		b.AllowedMountRoots = o.MountRoots
	}
	if b.Listen == "" {
		b.Listen = boxListen
	}
	if o.Stdio {
		in, out := pollable(os.Stdin), pollable(os.Stdout)
		b.Pipes = &daemon.BoxPipe{
			In: in, Out: out,
			Close: func() error { return errors.Join(in.Close(), out.Close()) },
			TLS:   o.TLSCert != "" || o.TLSKey != "",
		}
	}
	return cfg.ApplyBoxEnvironment(os.Getenv)
}

// pollable is f as a file whose reads and writes end when it is closed, where
// it is a pipe: a terminal is shared with others, who expect it as it is.
func pollable(f *os.File) *os.File {
	var st unix.Stat_t
	fd := int(f.Fd())
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return f
	}
	if unix.SetNonblock(fd, true) != nil {
		return f
	}
	return os.NewFile(uintptr(fd), f.Name())
}
