package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/cli"
	"github.com/carboy-sandbox/carboy/internal/doctor"
)

// diagnosed is a machine where one wall is weaker and one can't be used.
func diagnosed(state doctor.State) doctor.Report {
	r := doctor.Report{
		Version: "v1", Kernel: "6.1.0", OS: "Some Linux", Arch: "amd64", UID: 1000, Default: "gvisor",
		Walls: map[string]doctor.Verdict{
			"gvisor":  {State: doctor.Weaker, Weaker: []doctor.Weakness{{Promise: "memory", Reason: "no controller"}}, Millis: 300},
			"process": {State: doctor.Missing, Error: "no newuidmap", Hint: "apt-get install uidmap"},
		},
		Lines: []doctor.Line{
			{ID: "a", Area: "namespaces", Title: "one", State: doctor.OK, Found: "made one", Details: []string{"/a", "/b\x1b[31m"}},
			{ID: "b", Area: "namespaces", Title: "two", State: doctor.Missing, Found: "evil \x1b]0;title\x07 text", Why: "it matters", Mend: "sysctl -w x=1"},
			{ID: "c", Area: "storage", Title: "three", State: doctor.Info, Found: "there"},
		},
		Facts: []doctor.Fact{{Name: "user.max_user_namespaces", Value: "10"}},
	}
	if state == doctor.Missing {
		r.Walls["gvisor"] = doctor.Verdict{State: state, Error: "no"}
	}
	return r
}

// runDoctor runs carboy doctor over what was found.
func runDoctor(r doctor.Report, err error, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = cli.Main(context.Background(), append([]string{"doctor"}, args...), cli.Env{
		Stdout: &out, Stderr: &errs,
		Doctor: func(context.Context) (doctor.Report, error) { return r, err },
	})
	return code, out.String(), errs.String()
}

const diagnosis = `carboy v1, as uid 1000, on Linux 6.1.0, amd64, Some Linux

walls
  weaker   gvisor (the default)     works, with weaker promises: a command ran in a sandbox in 300 ms
           memory: no controller
  missing  process                  can't be used: no newuidmap
           mend: apt-get install uidmap

namespaces
  ok       one                      made one
           /a
           /b\x1b[31m
  missing  two                      evil \x1b]0;title\x07 text
           so: it matters
           mend: sysctl -w x=1

storage
  info     three                    there
`

func TestDoctor(t *testing.T) {
	code, out, errs := runDoctor(diagnosed(doctor.Weaker), nil)
	if diff := cmp.Diff(diagnosis, out); diff != "" || code != 0 || errs != "" {
		t.Errorf("exit code %d, stderr %q, stdout:\n%s", code, errs, diff)
	}
}

func TestDoctorExits(t *testing.T) {
	tests := []struct {
		name string
		r    doctor.Report
		err  error
		args []string
		code int
		errs string
	}{
		{"weaker", diagnosed(doctor.Weaker), nil, nil, 0, ""},
		{"weaker-json", diagnosed(doctor.Weaker), nil, []string{"--json"}, 0, ""},
		{"unfit", diagnosed(doctor.Missing), nil, nil, 1, ""},
		{"unfit-json", diagnosed(doctor.Missing), nil, []string{"--json"}, 1, ""},
		{"unfit-report", diagnosed(doctor.Missing), nil, []string{"--report"}, 1, ""},
		{"fails", doctor.Report{}, errors.New("interrupted by hand"), nil, 125, "interrupted by hand"},
		{"both", doctor.Report{}, nil, []string{"--json", "--report"}, 125, "can't go with --json"},
		{"argument", doctor.Report{}, nil, []string{"x"}, 125, "unexpected argument"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := runDoctor(tt.r, tt.err, tt.args...)
			if code != tt.code || !strings.Contains(errs, tt.errs) || (errs == "") != (tt.errs == "") || (out == "") != (tt.errs != "") {
				t.Errorf("exit code %d, want %d; stderr %q, want %q; stdout %q", code, tt.code, errs, tt.errs, out)
			}
		})
	}
	if code, _, errs := mainWithout("doctor"); code != 125 || !strings.Contains(errs, "no walls") {
		t.Errorf("without walls: exit code %d, stderr %q", code, errs)
	}
}

// TestDoctorJSON holds the names that programs read.
func TestDoctorJSON(t *testing.T) {
	_, out, _ := runDoctor(diagnosed(doctor.Weaker), nil, "--json")
	var got struct {
		Works   bool   `json:"works"`
		Version string `json:"version"`
		UID     int    `json:"uid"`
		Root    *bool  `json:"root"`
		Default string `json:"default"`
		Walls   map[string]struct {
			State  string `json:"state"`
			Millis int    `json:"millis"`
			Weaker []struct {
				Promise string `json:"promise"`
				Reason  string `json:"reason"`
			} `json:"weaker"`
			Error string `json:"error"`
			Hint  string `json:"hint"`
		} `json:"walls"`
		Lines []struct {
			ID, Area, Title, State, Found, Why, Mend string
			Details                                  []string
		} `json:"lines"`
		Kernel string `json:"kernel"`
		OS     string `json:"os"`
		Arch   string `json:"arch"`
		Facts  []struct{ Name, Value string }
	}
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if !got.Works || got.Root == nil || got.Default != "gvisor" || got.Walls["gvisor"].Weaker[0].Reason != "no controller" ||
		got.Walls["process"].Hint == "" || len(got.Lines) != 3 || got.Lines[1].Mend == "" || len(got.Facts) != 1 {
		t.Errorf("got %+v", got)
	}
}

// TestDoctorColour holds that colours are for terminals that want them.
func TestDoctorColour(t *testing.T) {
	for _, tt := range []struct {
		name   string
		env    map[string]string
		colour bool
	}{
		{"terminal", nil, true},
		{"no-color", map[string]string{"NO_COLOR": "1"}, false},
		{"dumb", map[string]string{"TERM": "dumb"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tty, slave, err := pty.Open()
			if err != nil {
				t.Skip(err)
			}
			defer tty.Close()
			text := make(chan string, 1)
			go func() {
				var b bytes.Buffer
				_, _ = b.ReadFrom(tty) // a terminal that is hung up ends with an error
				text <- b.String()
			}()
			code := cli.Main(t.Context(), []string{"doctor"}, cli.Env{
				Stdout: slave, Stderr: slave,
				LookupEnv: func(k string) (string, bool) { v, ok := tt.env[k]; return v, ok },
				Doctor:    func(context.Context) (doctor.Report, error) { return diagnosed(doctor.Weaker), nil },
			})
			slave.Close()
			got := <-text
			if code != 0 || strings.Contains(got, "\x1b[") != tt.colour || strings.Contains(got, "\x1b]0;") {
				t.Errorf("exit code %d, wrote %q", code, got)
			}
		})
	}
}
