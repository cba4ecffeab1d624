package process_test

import (
	"testing"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
)

func TestMemoryOfACommand(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		if _, err := w.start("other", sh("echo up; exec sleep 1000"), until("up")); err != nil {
			t.Fatal(err)
		}
		hog := sh("(setsid " + eat + " &); echo up; exec sleep 1000")
		hog.MemoryBytes = 64 << 20
		if e := w.run("hog", hog).exit; e.GetReason() != guestv1.Reason_REASON_OUT_OF_MEMORY || e.GetCode() != 137 {
			t.Errorf("hog: %v", e)
		}
		if w.get("other").GetExit() != nil {
			t.Error("the hog took another command with it")
		}
		modest := sh("head -c 16000000 /dev/zero | tail -c 16000000 | (sleep 0.5; wc -c)")
		modest.MemoryBytes = 64 << 20
		if r := w.run("modest", modest); r.exit.GetCode() != 0 || r.stdout.String() != "16000000\n" {
			t.Errorf("below its limit: %q, %v", r.stdout.String(), r.exit)
		}
		w.signal("other", 9, true, "me")
	})
}
