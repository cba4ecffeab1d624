// Package patience says how long tests wait for what has to happen: longer on a machine that
// is slow just then, by a factor that scripts/test.sh measures before the first test. What
// must not happen is waited for as long everywhere, and not by this package.
package patience

import (
	"os"
	"strconv"
	"time"
)

// variable has the factor. test/e2b/lib.mjs and its like read it too.
const variable = "CARBOY_PATIENCE"

// Most is the largest factor.
const Most = 6

// For is how long to wait for what takes less than d on a quiet machine.
func For(d time.Duration) time.Duration { return time.Duration(float64(d) * Factor()) }

// Until asks for a fact of the outside world that nobody announces, until it holds, and reports
// whether it does after d.
func Until(d time.Duration, fact func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(For(d)); ; <-tick.C {
		if fact() {
			return true
		}
		if time.Now().After(late) {
			return false
		}
	}
}

// Factor is from 1 to Most; 1 where nobody measured.
func Factor() float64 {
	f, err := strconv.ParseFloat(os.Getenv(variable), 64)
	if err != nil || f < 1 {
		return 1
	}
	return min(f, Most)
}
