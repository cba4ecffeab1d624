package guest

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	api "github.com/carboy-sandbox/carboy/api/guest"
)

// Bounds of a list of processes: what runs inside says how many there are, and what
// they are called.
const (
	maxProcesses = 2000
	maxCommand   = 200 // bytes
	ticks        = 100 // a second, in what the kernel says to programs
)

// serveProcesses lists what runs inside, as it sees itself: the commands' own /proc.
func (a *agent) serveProcesses(w http.ResponseWriter, _ *http.Request) {
	list, err := processes(fmt.Sprintf("/proc/%d/root/proc", a.jail.Init()), a.users)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, list)
}

// processes lists those of a /proc but its first, oldest first.
func processes(proc string, users *accounts) (api.Processes, error) {
	var out api.Processes
	names, err := namesOf(proc)
	if err != nil {
		return out, err
	}
	boot := bootTime()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 1 {
			continue
		}
		p, err := readProcess(filepath.Join(proc, name), boot)
		if err != nil {
			continue // it has ended
		}
		out.Total++
		out.Threads += p.Threads
		if len(out.List) < maxProcesses {
			p.PID = pid
			p.User = strconv.Itoa(p.UID)
			if u, err := users.Lookup(p.User); err == nil && u.Name != "" {
				p.User = u.Name
			}
			out.List = append(out.List, p)
		}
	}
	slices.SortFunc(out.List, func(a, b api.Process) int { return a.PID - b.PID })
	return out, nil
}

func namesOf(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// bootTime is what starts are counted from, in Unix seconds; 0: not known.
func bootTime() int64 {
	text, err := readProc("/proc/stat")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if s, ok := bytes.CutPrefix(line, []byte("btime ")); ok {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(s)), 10, 64)
			return n
		}
	}
	return 0
}

// readProcess reads one process of a directory of /proc.
func readProcess(dir string, boot int64) (p api.Process, err error) {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return p, err
	}
	p.UID = int(st.Uid)
	stat, err := readProc(dir + "/stat")
	if err != nil {
		return p, err
	}
	comm, err := parseProcess(stat, boot, &p)
	if err != nil {
		return p, err
	}
	line, _ := readProc(dir + "/cmdline")
	if len(line) > maxCommand {
		line = append(line[:maxCommand], "..."...)
	}
	p.Command = strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
	if p.Command == "" {
		p.Command = "[" + comm + "]"
	}
	p.Command = strings.ToValidUTF8(p.Command, "\uFFFD")
	return p, nil
}

var errStat = errors.New("a stat file of another form")

// parseProcess reads "PID (NAME) STATE PARENT …" into p and returns the name, which
// may hold anything.
func parseProcess(raw []byte, boot int64, p *api.Process) (comm string, err error) {
	i, j := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
	if i < 0 || j < i {
		return "", errStat
	}
	fields := bytes.Fields(raw[j+1:])
	const state, parent, user, system, threads, start, rss = 0, 1, 11, 12, 17, 19, 21
	if len(fields) <= rss {
		return "", errStat
	}
	number := func(i int) int64 {
		n, perr := strconv.ParseInt(string(fields[i]), 10, 64)
		if perr != nil || n < 0 {
			return 0
		}
		return n
	}
	p.State = string(fields[state])
	p.Parent = int(number(parent))
	p.CPUMillis = (number(user) + number(system)) * 1000 / ticks
	p.Threads = int(number(threads))
	if boot > 0 {
		p.Started = boot + number(start)/ticks
	}
	p.RSS = number(rss) * int64(os.Getpagesize())
	return string(raw[i+1 : j]), nil
}
