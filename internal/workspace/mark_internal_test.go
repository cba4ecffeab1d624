package workspace

import (
	"testing"
	"time"
)

// A file is known by its number and its birth, and by its number alone where one of two births is not known.
func TestMarksOfOneFile(t *testing.T) {
	was := Mark{Path: "a", Dev: 1, Ino: 2, CTime: 3, Born: 3}
	for name, tt := range map[string]struct {
		now  Mark
		same bool
	}{
		"changed-since":     {Mark{Path: "a", Dev: 1, Ino: 2, CTime: 9, Born: 3}, true},
		"renamed-since":     {Mark{Path: "b", Dev: 1, Ino: 2, CTime: 9, Born: 3}, true},
		"birth-not-known":   {Mark{Path: "a", Dev: 1, Ino: 2, CTime: 9}, true},
		"number-given-anew": {Mark{Path: "a", Dev: 1, Ino: 2, CTime: 9, Born: 9}, false},
		"another-number":    {Mark{Path: "a", Dev: 1, Ino: 9, CTime: 3, Born: 3}, false},
		"another-disk":      {Mark{Path: "a", Dev: 9, Ino: 2, CTime: 3, Born: 3}, false},
		"nothing":           {Mark{}, false},
	} {
		if was.same(tt.now) != tt.same || tt.now.same(was) != tt.same {
			t.Errorf("%s: same %t, want %t", name, !tt.same, tt.same)
		}
	}
}

// An apply waits for the clock to pass what it left, and for no other clock.
func TestOutlast(t *testing.T) {
	for name, tt := range map[string]struct {
		ahead time.Duration // of what was left
		waits bool
	}{
		"long-ago":        {-time.Hour, false},
		"in-a-moment":     {20 * time.Millisecond, true},
		"a-clock-ahead":   {time.Minute, false},
		"the-end-of-time": {time.Until(time.Unix(0, 1<<63-1)), false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, born := range []bool{false, true} {
				from := time.Now()
				m := Mark{Path: "a", CTime: from.Add(tt.ahead).UnixNano()}
				if born {
					m.CTime, m.Born = 0, m.CTime
				}
				outlast([]Mark{{Path: "old", CTime: 1}, m, {Path: "of-another-clock", CTime: from.Add(time.Hour).UnixNano()}})
				took := time.Since(from)
				if tt.waits && took < tt.ahead || took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
			}
		})
	}
}
