package escape

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
	"github.com/carboy-sandbox/carboy/test/long"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// composeBudget is how long one wall is tried with sequences that are made up:
// CARBOY_ESCAPE_COMPOSE, such as 1h.
func composeBudget(t *testing.T) time.Duration {
	text := os.Getenv("CARBOY_ESCAPE_COMPOSE")
	if text == "" {
		return long.Rounds(15*time.Second, 45*time.Second)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("CARBOY_ESCAPE_COMPOSE: %v", err)
	}
	return d
}

// composeSeeds are two that stay and one that nobody knows, or the one that
// CARBOY_ESCAPE_SEED has.
func composeSeeds(t *testing.T) []uint64 {
	text := os.Getenv("CARBOY_ESCAPE_SEED")
	if text == "" {
		return []uint64{1, 2, uint64(rand.Uint32())}
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("CARBOY_ESCAPE_SEED: %v", err)
	}
	return []uint64{n}
}

// least is how many sequences a seed has at least, however slow the machine is.
const least = 10

// TestCompositions makes up sequences of system calls inside, and watches what
// lies outside. It knows of no way out: it tries.
func TestCompositions(t *testing.T) {
	seeds, budget := composeSeeds(t), composeBudget(t)
	for _, wall := range walls() {
		for _, user := range users(wall) {
			t.Run(wall+"/"+user, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, setting{bin: binary(t), wall: wall, user: user, alone: true})
				c := newComposing(w)
				each := budget / time.Duration(len(users(wall))*len(seeds))
				for _, seed := range seeds {
					if bad := c.seed(seed, each); bad != nil {
						t.Error(finding + c.explain(bad))
						break
					}
				}
				t.Logf("seeds %d: %d sequences, %d steps, of which %d went through; %d boxes lost; from outside %v", seeds, c.sequences, c.steps, c.through, c.lost, c.done)
				if c.sequences < least {
					t.Errorf("only %d sequences ran", c.sequences)
				}
			})
		}
	}
}

// composing is a world in which sequences are run.
type composing struct {
	*world
	plan                            facts.Plan
	before                          map[string]string
	used                            int64
	turn                            int            // of what is done from outside
	done                            map[string]int // from outside, by the command that worked
	sequences, steps, through, lost int
}

// bad is what went wrong, and what did it.
type bad struct {
	seed  uint64
	what  []string
	ran   []facts.Composition
	after string // what was done from outside in between
}

func newComposing(w *world) *composing {
	c := &composing{world: w, done: map[string]int{}}
	c.settle()
	return c
}

// settle has a box anew, and takes what is there for what has to be there.
func (c *composing) settle() {
	c.t.Helper()
	if c.before != nil {
		c.run(nil, "rm", "-f", c.box)
		c.box = c.another()
	}
	for _, args := range [][]string{{"stop", c.box}, {"start", c.box}, {"exec", c.box, "--", "true"}} {
		c.ok(args...)
	}
	c.sync()
	c.before, c.used = c.watched(), c.usage()
	tokens, names := c.control()
	canaries := []string{c.path("outside/file"), c.path("outside/not-there")}
	c.plan = facts.Plan{Targets: canaries, Tokens: tokens, Names: names, Marker: host.facts.Marker, Most: 1 << 30}
}

// sync has what was written so far take up on the disk what it will: a file system may find
// places for it later.
func (c *composing) sync() {
	c.t.Helper()
	dir, err := os.Open(c.dir)
	if err == nil {
		err = errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// seed runs batches of a seed's sequences for a time, and looks after each.
func (c *composing) seed(seed uint64, budget time.Duration) *bad {
	p := c.plan
	end, late, had := time.Now().Add(budget), time.Now().Add(patience.For(5*budget)), c.sequences
	for time.Now().Before(end) || c.sequences-had < least && time.Now().Before(late) {
		p.Seed, p.Tokens, p.Names = seed, c.plan.Tokens, c.plan.Names
		p.Millis = min(3*time.Second, max(time.Second, time.Until(end))).Milliseconds()
		ran, ok := c.batch(p)
		if len(ran) > 0 {
			p.From = ran[len(ran)-1].Number + 1
		}
		if !ok { // not the same again
			p.From = (p.From/25 + 1) * 25
		}
		b := &bad{seed: seed, ran: ran}
		for _, one := range ran {
			if len(one.Finds) > 0 {
				b.what, b.ran = one.Finds, []facts.Composition{one}
				return b
			}
		}
		if b.what = c.changed(); len(b.what) > 0 {
			return b
		}
		b.after, ok = c.outside(ok)
		if b.what = c.changed(); len(b.what) > 0 {
			return b
		}
		if !ok {
			c.lost++
			c.settle()
		}
	}
	return nil
}

// changed lists what is not as it was, outside.
func (c *composing) changed() []string {
	list := changed(c.before, c.watched())
	if n := c.usage() - c.used; n > grows {
		list = append(list, fmt.Sprintf("the state takes up %d bytes more", n))
	}
	return list
}

// batch runs a plan inside, and reports whether the box came through it. One
// in which commands can't be started any more has harmed nobody but itself.
func (c *composing) batch(p facts.Plan) (ran []facts.Composition, ok bool) {
	c.t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		c.t.Fatal(err)
	}
	r := c.within(patience.For(40*time.Second), bytes.NewReader(b), "exec", "-i", "--timeout", "30s", c.box, "--", facts.Tools+"/probe", "compose")
	dec := json.NewDecoder(strings.NewReader(r.stdout))
	for {
		var one facts.Composition
		if dec.Decode(&one) != nil {
			break
		}
		ran = append(ran, one)
		c.sequences++
		c.steps += len(one.Steps)
		for _, s := range one.Steps {
			if s.Got == "" {
				c.through++
			}
		}
		if one.Error != "" {
			c.t.Logf("seed %d, sequence %d %s", p.Seed, one.Number, one.Error)
		}
	}
	if r.code != 0 {
		c.t.Logf("the box is lost: exit code %d: %.300s", r.code, r.stderr)
	}
	return ran, r.code == 0
}

// within is run with less patience, for boxes that no longer answer.
func (c *composing) within(limit time.Duration, stdin *bytes.Reader, args ...string) (r result) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.bin, args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = c.env, c.dir, time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if stdin != nil {
		cmd.Stdin = stdin
	}
	if err := cmd.Run(); err != nil {
		r.code = -1
		if cmd.ProcessState != nil {
			r.code = cmd.ProcessState.ExitCode()
		}
	}
	r.stdout, r.stderr = out.String(), errs.String()
	return r
}

// outside does from outside, in turn, what the host does with boxes: where it
// would follow what was left for it.
func (c *composing) outside(ok bool) (did string, up bool) {
	all := [][]string{
		{"stop " + c.box, "start " + c.box},
		{"diff --names " + c.box, "cp " + c.box + ":/tmp/. " + c.path("copied")},
		{"snapshot create " + c.box},
		{"stop " + c.box, "start " + c.box},
		{"pause " + c.box, "start " + c.box},
	}
	todo := all[c.turn%len(all)]
	c.turn++
	if !ok {
		todo = all[0]
	}
	for _, line := range todo {
		r := c.within(patience.For(40*time.Second), nil, strings.Fields(line)...)
		did += fmt.Sprintf("; carboy %s: %d", line, r.code)
		if r.code == 0 {
			c.done[strings.Fields(line)[0]]++
		}
	}
	_ = os.RemoveAll(c.path("copied"))
	r := c.within(patience.For(40*time.Second), nil, "exec", c.box, "--", facts.Tools+"/probe", "euid")
	return strings.TrimPrefix(did, "; "), ok && r.code == 0
}

// explain says what went wrong, and by how little.
func (c *composing) explain(b *bad) string {
	ran, sure := c.shrink(b)
	text := fmt.Sprintf("seed %d (CARBOY_ESCAPE_SEED): after %d sequences:\n\t%s\n", b.seed, c.sequences, strings.Join(b.what[:min(len(b.what), 12)], "\n\t"))
	if b.after != "" {
		text += "after " + b.after + "\n"
	}
	if !sure {
		return text + "no sequence does it alone in a new box; it is one of the last batch, or several together"
	}
	for _, one := range ran {
		text += fmt.Sprintf("sequence %d, by a process with clone flags %#x, map %q:\n", one.Number, one.Entry.Flags, one.Entry.Map)
		for _, s := range one.Steps {
			text += "\t" + s.String() + "\n"
		}
	}
	again, _ := json.Marshal(ran)
	return text + "again: " + string(slices.Clip(again))
}
