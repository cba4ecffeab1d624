// Measure prints the factor of package patience for this machine as it is now: how much longer
// a fixed amount of hashing and of starting processes takes than on a quiet machine of two
// cores, from 1 to patience.Most.
package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// What each half takes on a quiet machine.
const (
	hashing  = 55 * time.Millisecond
	starting = 36 * time.Millisecond
)

func main() {
	var factors []float64
	for range 5 {
		h, err := timed(hash)
		if err != nil {
			fail(err)
		}
		s, err := timed(start)
		if err != nil {
			fail(err)
		}
		if len(os.Args) > 1 { // to find the figures above
			fmt.Fprintln(os.Stderr, h, s)
		}
		factors = append(factors, max(float64(h)/float64(hashing), float64(s)/float64(starting)))
	}
	slices.Sort(factors)
	fmt.Printf("%.2f\n", min(max(factors[len(factors)/2], 1), patience.Most))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "measure:", err)
	os.Exit(1)
}

func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}

// hash works on two cores.
func hash() error {
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			b := make([]byte, 1<<20)
			for range 64 {
				sum := sha256.Sum256(b)
				copy(b, sum[:])
			}
		})
	}
	both.Wait()
	return nil
}

// start starts processes, one after the other.
func start() error {
	for range 40 {
		if err := exec.Command("/bin/true").Run(); err != nil {
			return err
		}
	}
	return nil
}
