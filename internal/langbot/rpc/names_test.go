package rpc_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
)

// Hosts make these names by themselves: they can't change.
func TestNames(t *testing.T) {
	of := langbot.Context{InstanceUUID: "i", WorkspaceUUID: "w", PlacementGeneration: 7}
	if got, want := rpc.KeyPrefix(of), "ws-b956c8cef7c66e28585d87a3-g7-"; got != want {
		t.Errorf("KeyPrefix = %s, want %s", got, want)
	}
	for id, want := range map[string]string{" group/room 1 ": "group-room-1", "a_b.c-d": "a_b.c-d", "-/é/-": "", "": ""} {
		if got := rpc.CleanID(id); got != want {
			t.Errorf("CleanID(%q) = %q, want %q", id, got, want)
		}
	}
	for name, want := range map[string]bool{"i": true, "a.b_c:d-e": true, "": false, ".a": false, "a b": false, "é": false} {
		if got := rpc.ValidInstance(name); got != want {
			t.Errorf("ValidInstance(%q) = %v, want %v", name, got, want)
		}
	}
}

// What hosts make alike of two IDs is still two keys, each of which leads back.
func TestKeys(t *testing.T) {
	of := map[string]string{}
	for _, id := range []string{
		"a-b", "a/b", "a:b", "a b", "a--b", "-a-b", "a-b-", "person_", "person_张三", "person_李四", "\u00e9x", "e\u0301x",
		"a-b~YS9i", "a~b", "~", strings.Repeat("x/", 300), strings.Repeat("x/", 300) + "y",
	} {
		key := rpc.Key(id)
		if id == "~" {
			if key != "" {
				t.Errorf("Key(%q) = %q", id, key)
			}
			continue
		}
		if other, ok := of[key]; ok {
			t.Errorf("%q and %q have the key %q", id, other, key)
		}
		of[key] = id
		if got := rpc.KeyID(key); got != id {
			t.Errorf("KeyID(Key(%q)) = %q", id, got)
		}
	}
	if rpc.Key(" a-b ") != "a-b" {
		t.Errorf("a clean ID's key is %q", rpc.Key(" a-b "))
	}
	for _, text := range []string{"a-b~", "a-b~YS9j!", "c~YS9i", "a-b~YS1i", "a~_w"} {
		if got := rpc.KeyID(text); got != text {
			t.Errorf("KeyID(%q) = %q, though no ID has that key", text, got)
		}
	}
}

func FuzzKey(f *testing.F) {
	for _, id := range []string{"a-b", "a/b", "~YS9i", "a-b~YS9i", "\xff", " é "} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		rpc.KeyID(id)
		if id = strings.TrimSpace(id); !utf8.ValidString(id) {
			return
		}
		key := rpc.Key(id)
		if (key == "") != (rpc.CleanID(id) == "") || key != "" && rpc.KeyID(key) != id {
			t.Errorf("Key(%q) = %q, which leads back to %q", id, key, rpc.KeyID(key))
		}
	})
}
