package node

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/mountinfo"
)

// meterEvery is the shortest stretch of time that use is measured over.
const meterEvery = time.Second

// cpuMeter tells how busy the processors were since it was last read.
type cpuMeter struct {
	at         time.Time
	busy, all  uint64
	percentage int
}

// sample returns the share of time that processors worked, of a hundred.
func (c *cpuMeter) sample(proc string, now time.Time) int {
	if !c.at.IsZero() && now.Sub(c.at) < meterEvery {
		return c.percentage
	}
	line, ok := firstLine(filepath.Join(proc, "stat"))
	fields := strings.Fields(line)
	if !ok || len(fields) < 6 || fields[0] != "cpu" {
		return c.percentage
	}
	var all, idle uint64
	for i, f := range fields[1:min(len(fields), 9)] { // guests' time is in user time already
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return c.percentage
		}
		all += n
		if i == 3 || i == 4 { // idle, and waiting for a disk
			idle += n
		}
	}
	busy := all - idle
	if all > c.all && busy >= c.busy {
		c.percentage = int((busy - c.busy) * 100 / (all - c.all))
	}
	c.at, c.busy, c.all = now, busy, all
	return c.percentage
}

func firstLine(path string) (string, bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	ok := sc.Scan()
	return sc.Text(), ok
}

// pairs reads lines of NAME: VALUE, up to the first empty line.
func pairs(path string) map[string]string {
	out := map[string]string{}
	f, err := os.Open(path)
	if err != nil {
		return out
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan() && sc.Text() != ""; {
		if name, value, ok := strings.Cut(sc.Text(), ":"); ok {
			out[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return out
}

// memory fills in what is known of memory.
func (i *Info) memory(proc string) {
	m := pairs(filepath.Join(proc, "meminfo"))
	number := func(name string) int64 {
		digits, unit, _ := strings.Cut(m[name], " ")
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 {
			return 0
		}
		if unit == "kB" {
			n <<= 10
		}
		return n
	}
	i.MemoryTotal = number("MemTotal")
	i.MemoryUsed = max(0, i.MemoryTotal-number("MemAvailable"))
	i.HugeTotal, i.HugeReserved, i.HugePage = number("HugePages_Total"), number("HugePages_Rsvd"), number("Hugepagesize")
	i.HugeUsed = max(0, i.HugeTotal-number("HugePages_Free"))
}

// machine fills in what is known of the processors.
func (i *Info) machine(proc string) {
	c := pairs(filepath.Join(proc, "cpuinfo"))
	i.Family, i.Model, i.ModelName = c["cpu family"], c["model"], c["model name"]
}

// disk returns the file system of dir.
func disk(proc, dir string) Disk {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Statfs(dir, &fs) != nil || unix.Stat(dir, &st) != nil {
		return Disk{}
	}
	d := Disk{Total: int64(fs.Blocks) * fs.Bsize, Used: int64(fs.Blocks-fs.Bfree) * fs.Bsize}
	f, err := os.Open(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return d
	}
	defer f.Close()
	number := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	for sc := bufio.NewScanner(f); sc.Scan(); {
		m, ok := mountinfo.Parse(sc.Text())
		if ok && m.Device == number && (dir == m.Point || m.Point == "/" || strings.HasPrefix(dir, m.Point+"/")) {
			d.MountPoint, d.Type, d.Device = m.Point, m.Type, m.Source
		}
	}
	return d
}
