package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// record is what a run leaves behind: the numbers that the next one is compared with.
type record struct {
	Commit  string `json:"commit"`
	Clean   bool   `json:"clean"` // nothing in the tree was changed
	Seconds int64  `json:"seconds"`
	Cores   int    `json:"cores"`
	// Factor is package patience's, measured before the first test.
	Factor  float64 `json:"factor"`
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Flaky   int     `json:"flaky"`
	Skipped int     `json:"skipped"`
	Green   bool    `json:"green"`
}

// record writes test.json and flaky.json into dir. Began is in seconds since 1970.
func (v *verdict) record(dir string, began int64) error {
	commit, _ := exec.Command("git", "rev-parse", "HEAD").Output()
	changed, err := exec.Command("git", "status", "--porcelain").Output()
	r := record{
		Commit: strings.TrimSpace(string(commit)), Clean: err == nil && len(changed) == 0,
		Cores: runtime.NumCPU(), Factor: patience.Factor(), Passed: v.passed, Failed: v.failed, Flaky: len(v.flaky), Skipped: v.skipped, Green: v.green(),
	}
	if began > 0 {
		r.Seconds = time.Now().Unix() - began
	}
	flakes := v.flaky
	if flakes == nil {
		flakes = []flaky{}
	}
	return errors.Join(writeJSON(filepath.Join(dir, "test.json"), r), writeJSON(filepath.Join(dir, "flaky.json"), flakes))
}

func writeJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(b, '\n'), 0o644)
}
