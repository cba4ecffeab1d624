// Command attacker runs inside a sandbox with a network and tries to get past
// its gate: each argument names an attempt, and all are made at once. It
// prints what it found as JSON. Most attempts can't tell by themselves whether
// they got anywhere: the servers of the test's world keep what reached them.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
)

// result is what an attempt says of itself.
type result struct {
	Name  string   `json:"name"`
	Found string   `json:"found,omitempty"` // what it got hold of, where it can tell
	Got   []string `json:"got,omitempty"`   // what it received, for the test to search
	Error string   `json:"error,omitempty"` // it could not be made
}

// attempt makes one. It notes what it finds in r; an error says that it could
// not be made, not that it failed.
type attempt func(r *result) error

var attempts = map[string]attempt{}

func main() { os.Exit(run(os.Args[1:])) }

func run(names []string) int {
	if len(names) == 1 && names[0] == "list" {
		var all []string
		for name := range attempts {
			all = append(all, name)
		}
		slices.Sort(all)
		for _, name := range all {
			fmt.Println(name)
		}
		return 0
	}
	if len(names) == 1 && names[0] == "listen" {
		return listen()
	}
	results := make([]result, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		results[i].Name = name
		do := attempts[name]
		if do == nil {
			results[i].Error = "there is no such attempt"
			continue
		}
		wg.Go(func() {
			if err := do(&results[i]); err != nil {
				results[i].Error = err.Error()
			}
		})
	}
	wg.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		return 1
	}
	return 0
}

// listen is what another sandbox does: it greets whoever comes.
func listen() int {
	l, err := net.Listen("tcp", ":7777")
	if err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		return 1
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		_, _ = c.Write([]byte("another sandbox\n"))
		c.Close()
	}
}
