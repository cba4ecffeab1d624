package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func example() *Report {
	return &Report{
		Schema: schema, Version: "1.2.3", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 61.5, Rounds: 15, Quick: true,
		Machine: Machine{CPUs: 2, Model: "Some CPU", Arch: "amd64", Memory: 24 << 30, Kernel: "6.1", System: "Debian", FileSystem: "ext4", Load: 0.25, Hypervisor: true},
		Peers:   []Peer{{"native", true, "processes"}, {"bwrap", false, "there is no bwrap in PATH: it is in the package bubblewrap"}},
		Groups: []GroupResult{{Name: "start", Title: "a title", Cases: []CaseResult{
			{Name: "native", Metrics: []MetricResult{
				{Name: firstOutput, Unit: millis, Summary: Summary{15, 0.5, 0.25, 1}, Samples: []float64{0.5}},
				{Name: done, Unit: millis, Summary: Summary{}},
			}},
			{Name: "carboy", Failures: 2, Reasons: []string{"bad \x1b[2J", "worse"}, Metrics: []MetricResult{
				{Name: firstOutput, Unit: millis, Summary: Summary{13, 55.44, 40, 1234.5}, Samples: []float64{1, 2}, Ratios: []Ratio{{"native", 110.88}, {"bwrap", 0.5}}},
			}},
			{Name: "gone", Failures: 16, Reasons: []string{"no"}, Metrics: []MetricResult{{Name: firstOutput, Unit: millis}}},
		}}},
		Cut: "interrupted", Leftover: []string{"/tmp/x"},
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("run go test with -update if this is meant:\n%s", diff)
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := example().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("a terminal would obey what a program said")
	}
	golden(t, "table.txt", b.Bytes())
}

// TestJSON pins the names that programs read.
func TestJSON(t *testing.T) {
	got, err := json.MarshalIndent(example(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", append(got, '\n'))
	var back Report
	dec := json.NewDecoder(bytes.NewReader(got))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(example(), &back); diff != "" {
		t.Error(diff)
	}
}
