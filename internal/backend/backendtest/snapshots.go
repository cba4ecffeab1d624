package backendtest

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/snapshot"
)

// Snapshots opens the snapshots of a state, as the walls under test are to
// have them.
func Snapshots(t *testing.T, state string) *snapshot.Store {
	t.Helper()
	s, err := snapshot.New(filepath.Join(state, "snapshots"), snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// trySave makes a snapshot of an instance, as a manager would.
func (w *world) trySave(t *testing.T, sb *sandbox.Sandbox) (sandbox.Snapshot, error) {
	t.Helper()
	saver := w.Capabilities().Snapshots
	if saver == nil {
		t.Skip("the wall saves nothing")
	}
	rec := sandbox.Snapshot{
		ID: "sn_" + strings.TrimPrefix(newID(), "sb_") + "aaaa", Owner: sb.Owner,
		Image: sb.Spec.Image, Parent: sb.Spec.Snapshot, Source: sb.ID,
	}
	return Snapshots(t, w.state).Keep(t.Context(), rec, func(ctx context.Context, dir string) (sandbox.Saved, error) {
		return saver.Save(ctx, sb, dir)
	})
}

func (w *world) save(t *testing.T, sb *sandbox.Sandbox) sandbox.Snapshot {
	t.Helper()
	s, err := w.trySave(t, sb)
	if err != nil {
		t.Fatalf("Save: %v", err)
	}
	if len(s.Notes) > 0 {
		t.Errorf("left out: %q", s.Notes)
	}
	return s
}

// from starts an instance from a snapshot.
func (w *world) from(t *testing.T, s sandbox.Snapshot) *instance {
	t.Helper()
	return w.begin(t, func(sb *sandbox.Sandbox) { sb.Spec.Snapshot = s.ID })
}

// userFiles are what a command without rights can make. A kernel of the instance's
// own may keep pipes to itself: they are not compared.
const userFiles = `
cd /workspace
umask 022
mkdir -p d/e 'a name
of two lines' closed
echo one > d/one; ln d/one d/e/again; ln d/one linked
ln -s /etc/passwd link; ln -s nowhere dangling
truncate -s 100M sparse; printf end | dd of=sparse bs=1 seek=50000000 conv=notrunc status=none
mkfifo pipe
echo x > 'a name
of two lines/f'
chmod 750 d; chmod 4711 linked; chmod 0 closed
touch -d '2001-02-03 04:05:06.123456789' d/one
mkdir -p ~/.config/tool; echo two > ~/.config/tool/rc; touch ~/"$(printf 'bad\377name')"
rm -f ~/.profile
i=0; while [ $i -lt 60 ]; do mkdir deep$i; cd deep$i; i=$((i+1)); done; echo down > bottom
`

// rootFiles are what takes root: changes of the image.
const rootFiles = `
rm /etc/hosts.allow 2>/dev/null; rm -rf /etc/cron.daily; mkdir /etc/cron.daily; echo mine > /etc/cron.daily/mine
rm -rf /usr/share/doc/bash; mkdir -p /usr/share/doc/bash; echo new > /usr/share/doc/bash/new
rm -f /usr/bin/yes
echo '#!/bin/sh
echo saved' > /usr/bin/carboy-saved; chmod 755 /usr/bin/carboy-saved
mkdir /srv/a; echo s > /srv/a/s; chown 123:456 /srv/a/s
echo '127.0.0.1 saved' >> /etc/hosts
`

// describe prints all that must be alike of what both scripts made.
const describe = `
cd /workspace && find . -depth \( -type d -printf '%p %y %m %U %G\n' , ! -type d ! -type p -printf '%p %y %m %U %G %s %n %l\n' \) | sort
find . -type f -readable -exec md5sum {} + | sort
stat -c %.9Y d/one # another's time may be told more closely by the kernel that is asked
[ d/one -ef d/e/again ] && [ d/one -ef linked ] && echo linked
[ "$(du -k sparse | cut -f1)" -lt 2000 ] && echo sparse
cd /home/user && find . \( -name '*bad*' -o -name .profile -o -path './.config*' \) -printf '%p %y %m %U %G\n' | sort
ls -A /etc/cron.daily /usr/share/doc/bash 2>&1; ls /usr/bin/yes 2>&1
stat -c '%n %u %g %a' /srv/a/s /usr/bin/carboy-saved 2>&1
tail -n 1 /etc/hosts
`

func testSnapshots(t *testing.T, s *suite) {
	for _, part := range []struct {
		name string
		test func(*testing.T, *suite)
	}{
		{"whole", testSnapshotWhole},
		{"chain", testSnapshotChain},
		{"shared", testSnapshotShared},
		{"moment", testSnapshotMoment},
		{"goes on", testSnapshotGoesOn},
		{"marks", testSnapshotMarks},
		{"view", testSnapshotBelowView},
		{"refused", testSnapshotRefused},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, s) })
	}
}

// What an instance wrote is seen by one that starts from its snapshot, made while it
// ran and while it did not, and in no other.
func testSnapshotWhole(t *testing.T, s *suite) {
	w := s.open(t)
	b := w.begin(t)
	b.sh(t, "", userFiles)
	if s.Root {
		b.sh(t, "root", rootFiles)
	}
	user := s.users()[len(s.users())-1]
	want := b.sh(t, user, describe)
	for _, piece := range []string{"linked\n", "sparse\n", "bottom"} {
		if !strings.Contains(want, piece) {
			t.Fatalf("not made: %s in\n%s", piece, want)
		}
	}
	running := w.save(t, b.sb)
	b.says(t, "echo on > /workspace/after; cat /workspace/after; rm /workspace/after", "on\n")
	w.mustStop(t, b.id)
	stopped := w.save(t, b.sb)
	if running.Size == 0 || stopped.Size == 0 {
		t.Errorf("sizes %d and %d", running.Size, stopped.Size)
	}
	for name, from := range map[string]sandbox.Snapshot{"running": running, "stopped": stopped} {
		t.Run(name, func(t *testing.T) {
			again := w.from(t, from)
			if got := again.sh(t, user, describe); got != want {
				t.Errorf("(-source +copy):\n%s", cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
			}
			again.sh(t, "", "rm -r /workspace/d && echo own > /workspace/own && echo own > ~/own")
			w.mustStop(t, again.id)
			again = w.restart(t, again.sb)
			again.says(t, "cat /workspace/own ~/own; ls -d /workspace/d 2>/dev/null || true", "own\nown\n")
		})
	}
	other := w.begin(t)
	other.says(t, "ls -A /workspace; ls ~/own /usr/bin/carboy-saved 2>/dev/null || true", "")
}

// Each of a chain sees what those below it wrote, and what they deleted.
func testSnapshotChain(t *testing.T, s *suite) {
	w := s.open(t)
	b := w.begin(t)
	b.sh(t, "", "cd /workspace; echo 1 > one; echo 1 > both; mkdir -p d; echo 1 > d/one; echo h > ~/h")
	for _, script := range []string{
		"cd /workspace; rm one; echo 2 > both; echo 2 > two; rm -r d; mkdir d; echo 2 > d/two; rm ~/h",
		"cd /workspace; echo 3 > one; mv two three; rm -r d",
		"cd /workspace; mkdir d; echo 4 > d/four",
	} {
		b = w.from(t, w.save(t, b.sb))
		b.sh(t, "", script)
	}
	last := w.from(t, w.save(t, b.sb))
	last.says(t, "cd /workspace; head -v $(find . -type f | sort); ls ~/h 2>/dev/null || true",
		"==> ./both <==\n2\n\n==> ./d/four <==\n4\n\n==> ./one <==\n3\n\n==> ./three <==\n2\n")
	if layers, err := Snapshots(t, w.state).Layers(t.Context(), last.sb.Spec.Snapshot); err != nil || len(layers) != 4 {
		t.Errorf("Layers = %q, %v", layers, err)
	}
}

// Two instances of one snapshot don't see each other, and don't change it.
func testSnapshotShared(t *testing.T, s *suite) {
	w := s.open(t)
	b := w.begin(t)
	b.sh(t, "", "echo first > /workspace/f; echo first > ~/f")
	snap := w.save(t, b.sb)
	one, two := w.from(t, snap), w.from(t, snap)
	one.sh(t, "", "echo one | tee /workspace/f /workspace/mine > ~/f")
	two.says(t, "cat /workspace/f ~/f; ls /workspace", "first\nfirst\nf\n")
	two.sh(t, "", "rm /workspace/f ~/f")
	w.mustRemove(t, b.id)
	one.says(t, "cat /workspace/f ~/f", "one\none\n")
	w.from(t, snap).says(t, "cat /workspace/f ~/f; ls /workspace", "first\nfirst\nf\n")
}

// writer writes the same number to two files, one after the other, without
// end: at any moment they are at most one apart, and no other file is older.
const writer = `cd /workspace; echo 0 > a; echo 0 > b; echo ready; i=0
while :; do i=$((i+1)); echo $i > a.new; mv a.new a; echo $i > b.new; mv b.new b; done`

// A snapshot is of one moment, although the instance writes all the time.
func testSnapshotMoment(t *testing.T, s *suite) {
	w := s.open(t)
	b := w.begin(t)
	// Enough that a copy takes its time between the two.
	b.sh(t, "", "mkdir /workspace/aa; cd /workspace/aa; for i in $(seq 300); do head -c 30000 /dev/urandom > f$i; done")
	b.begin(t, command("", writer)).awaits("ready\n")
	for range 3 {
		snap := w.save(t, b.sb)
		layers, err := Snapshots(t, w.state).Layers(t.Context(), snap.ID)
		if err != nil {
			t.Fatal(err)
		}
		x, y := number(t, layers[0]+"/workspace/a"), number(t, layers[0]+"/workspace/b")
		if x != y && x != y+1 {
			t.Errorf("a is %d, and b %d", x, y)
		}
		before := b.sh(t, "", "cat /workspace/a")
		until(t, "the writer goes on", func() bool { return b.sh(t, "", "cat /workspace/a") != before })
	}
}

// What begins and ends programs all the time goes on after each of many snapshots: in a process group with no parent in
// its session, which a kernel may hang up when it finds a part of it stopped.
func testSnapshotGoesOn(t *testing.T, s *suite) {
	w := s.open(t)
	b := w.begin(t)
	b.begin(t, command("", `cd /workspace; echo 0 > n; echo ready; i=0
while :; do i=$(echo $((i+1)) | cat | cat); echo $i > n.new; mv n.new n; done`)).awaits("ready\n")
	for range 12 {
		w.save(t, b.sb)
		before := b.sh(t, "", "cat /workspace/n")
		until(t, "the program goes on", func() bool { return b.sh(t, "", "cat /workspace/n") != before })
	}
}

func number(t *testing.T, path string) int {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What looks like an overlay's marks, and is a command's doing, hides nothing.
func testSnapshotMarks(t *testing.T, s *suite) {
	w := s.open(t)
	b := w.begin(t)
	b.sh(t, "", "mkdir /workspace/d; echo x > /workspace/d/f")
	b = w.from(t, w.save(t, b.sb))
	user := s.users()[len(s.users())-1]
	b.run(t, command(user, `cd /workspace; echo y > d/g
for p in user trusted; do setfattr -n $p.overlay.opaque -v y d; setfattr -n $p.overlay.whiteout -v y d/f; done; mknod d/f2 c 0 0; true`))
	want := b.sh(t, "", "cd /workspace; cat d/f d/g")
	if want != "x\ny\n" {
		t.Fatalf("got %q", want)
	}
	first, err := w.trySave(t, b.sb)
	if err != nil {
		t.Fatal(err)
	}
	w.from(t, first).says(t, "cd /workspace; cat d/f d/g", want)
}

// An instance over a snapshot that looks at a directory of the host has that in the
// place of the workspace which was saved, and the rest of it.
func testSnapshotBelowView(t *testing.T, s *suite) {
	w := s.open(t)
	b := w.begin(t)
	b.sh(t, "", "echo saved > /workspace/f; echo saved > ~/f")
	snap := w.save(t, b.sb)
	dir := tree(t, map[string]string{"host": "the host's\n"})
	view := w.begin(t, over(t, sandbox.WorkspaceCOW, dir), func(sb *sandbox.Sandbox) { sb.Spec.Snapshot = snap.ID })
	view.says(t, "cat ~/f; ls /workspace", "saved\nhost\n")

	// Of a view itself what is outside of it is saved, and nothing of it.
	view.sh(t, "", "echo root > ~/g; echo secret > /workspace/new; echo changed > /workspace/host")
	w.from(t, w.save(t, view.sb)).says(t, "cat ~/f ~/g; ls -A /workspace; cat /workspace/f", "saved\nroot\nf\nsaved\n")
}

func testSnapshotRefused(t *testing.T, s *suite) {
	w := s.open(t)
	sb := w.record(func(sb *sandbox.Sandbox) { sb.Spec.Snapshot = "sn_aaaaaaaaaaaaaaaaaaaa" })
	t.Cleanup(func() { w.mustRemove(t, sb.ID) })
	_, err := w.Start(t.Context(), sb)
	wantKind(t, "Start from a snapshot that is not there", err, sandbox.NotFound)
	_, err = w.trySave(t, w.record())
	wantKind(t, "Save of an instance that is not there", err, sandbox.Conflict)

	b := w.begin(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Capabilities().Snapshots.Save(ctx, b.sb, tempDir(t)); err == nil {
		t.Error("Save by a caller who left succeeded")
	}
	b.says(t, "echo on", "on\n")
}
