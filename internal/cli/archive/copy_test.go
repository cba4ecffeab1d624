package archive_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/cli/archive"
)

func TestPlace(t *testing.T) {
	tests := []struct {
		in, name, path string
		tree, dir      bool
	}{
		{in: "web:/x", name: "web", path: "/x"},
		{in: "web:", name: "web", path: ".", tree: true, dir: true},
		{in: "web:a:b", name: "web", path: "a:b"},
		{in: "./web:x", path: "./web:x"},
		{in: "/web:x", path: "/web:x"},
		{in: "Web:x", path: "Web:x"},
		{in: "a/b:c", path: "a/b:c"},
		{in: "dir/", path: "dir/", dir: true},
		{in: "dir/.", path: "dir/.", tree: true, dir: true},
		{in: ".", path: ".", tree: true, dir: true},
		{in: "..", path: ".."},
		{in: "-", path: "-"},
		{in: "sb_abcdefghij234567abcd:x", name: "sb_abcdefghij234567abcd", path: "x"},
		{in: "sb_short:x", path: "sb_short:x"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			name, path, tree, dir := archive.Place(tt.in)
			if name != tt.name || path != tt.path || tree != tt.tree || dir != tt.dir {
				t.Errorf("got %q, %q, %t, %t; want %q, %q, %t, %t", name, path, tree, dir, tt.name, tt.path, tt.tree, tt.dir)
			}
		})
	}
}
