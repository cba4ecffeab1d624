package guest_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api/action"
)

// wire are the types of each action: its request, and its reply.
var wire = map[string][2]any{
	action.Exec:           {action.ExecRequest{}, action.ExecReply{}},
	action.ExtractArchive: {action.ExtractRequest{}, action.ExtractReply{}},
	action.ExportArchive:  {action.ExportRequest{}, action.ExportReply{}},
	action.OpenShell:      {action.OpenShellRequest{}, action.Shell{}},
	action.ReadShell:      {action.ReadShellRequest{}, action.ReadShellReply{}},
	action.WriteShell:     {action.WriteShellRequest{}, action.WriteShellReply{}},
	action.SignalShell:    {action.SignalShellRequest{}, action.SignalShellReply{}},
	action.CloseShell:     {action.ShellRequest{}, action.CloseShellReply{}},
	action.StatusShell:    {action.ShellRequest{}, action.Shell{}},
	action.ResizeShell:    {action.ResizeShellRequest{}, action.Shell{}},
	action.ListShells:     {action.ListRequest{}, action.ListShellsReply{}},
	action.StartService:   {action.StartServiceRequest{}, action.Service{}},
	action.StatusService:  {action.ServiceRequest{}, action.Service{}},
	action.LogsService:    {action.LogsServiceRequest{}, action.LogsServiceReply{}},
	action.StopService:    {action.ServiceRequest{}, action.Service{}},
	action.ListServices:   {action.ListRequest{}, action.ListServicesReply{}},
	action.ListFiles:      {action.ListFilesRequest{}, action.ListFilesReply{}},
	action.ReadFile:       {action.ReadFileRequest{}, action.ReadFileReply{}},
	action.WriteFile:      {action.WriteFileRequest{}, action.WriteFileReply{}},
}

// fields are the names of a type's JSON, with what is embedded as one word.
func fields(v any) (names []string) {
	for f := range reflect.TypeOf(v).Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[action.Shell]() || f.Type == reflect.TypeFor[action.Service]():
			names = append(names, "a "+strings.ToLower(f.Name))
		case f.Anonymous:
			names = append(names, fields(reflect.New(f.Type).Elem().Interface())...)
		case name != "action":
			names = append(names, name)
		}
	}
	return names
}

// The document has each action with all its fields, and no others.
func TestNames(t *testing.T) {
	raw, err := os.ReadFile("../../docs/conformance/guest.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)`[^|]* \\|([^|]*)\\|([^|]*)\\|$").FindAllStringSubmatch(string(raw), -1)
	word := regexp.MustCompile("`([a-z_]+)`|a shell|a service")
	seen := map[string]bool{}
	for _, row := range rows {
		types, ok := wire[row[1]]
		if !ok {
			if row[1] != action.InstallSecrets && !strings.HasPrefix(row[1], "test_") {
				t.Errorf("%s is no action", row[1])
			}
			continue
		}
		seen[row[1]] = true
		for i, v := range types {
			want := fields(v)
			if reflect.TypeOf(v) == reflect.TypeFor[action.Shell]() {
				want = []string{"a shell"}
			}
			if reflect.TypeOf(v) == reflect.TypeFor[action.Service]() {
				want = []string{"a service"}
			}
			text, _, _ := strings.Cut(row[2+i], ": `path`") // what entries have
			var got []string
			for _, m := range word.FindAllString(text, -1) {
				got = append(got, strings.Trim(m, "`"))
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: the document has %v, the types have %v", row[1], got, want)
			}
		}
	}
	for name := range wire {
		if !seen[name] {
			t.Errorf("%s is not in the document", name)
		}
	}
}
