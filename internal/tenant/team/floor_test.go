package team_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

func TestFloor(t *testing.T) {
	const low, high = sandbox.WallProcess, sandbox.WallGVisor
	none := team.NewBook(team.Limits{}, nil)
	named := team.NewBook(team.Limits{}, map[string]team.Limits{
		"key:low": {Isolation: low}, "key:high": {Isolation: high}, "key:other": {Builds: 1}, "uid:7": {Isolation: high},
	})
	tests := []struct {
		name       string
		book       *team.Book
		owner, own string
		wall, from string
	}{
		{"no-book", nil, "key:a", "", high, "weakest_isolation, of who comes with a key,"},
		{"key", none, "key:a", "", high, "weakest_isolation, of who comes with a key,"},
		{"key-says-low", none, "key:a", low, low, "the key's isolation"},
		{"key-says-high", none, "key:a", high, high, "the key's isolation"},
		{"user", none, "uid:1", "", "", ""},
		{"user-with-limits", named, "uid:7", "", high, "limits.uid:7.isolation"},
		{"session-host", none, "box:a", "", "", ""},
		{"daemon", team.NewBookOver(low, team.Limits{}, nil), "key:a", "", low, "weakest_isolation, of who comes with a key,"},
		{"daemon-and-key", team.NewBookOver(low, team.Limits{}, nil), "key:a", high, high, "the key's isolation"},
		{"team", named, "key:low", "", low, "limits.key:low.isolation"},
		{"team-and-key", named, "key:low", high, high, "the key's isolation"},
		{"team-before-key", named, "key:high", low, high, "limits.key:high.isolation"},
		{"team-without", named, "key:other", "", high, "weakest_isolation, of who comes with a key,"},
		{"default", team.NewBook(team.Limits{Isolation: low}, nil), "key:a", "", low, "limits.default.isolation"},
		{"default-of-others", team.NewBook(team.Limits{Isolation: low}, map[string]team.Limits{"key:a": {}}), "key:a", "", high, "weakest_isolation, of who comes with a key,"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got, want := tc.book.Floor(tc.owner, tc.own), (sandbox.Floor{Wall: tc.wall, Setting: tc.from}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
	if got := named.Quota("key:low").Floor.Wall; got != low {
		t.Errorf("a quota has %q", got)
	}
}
