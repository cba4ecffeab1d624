package jail_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

func TestParseNSpid(t *testing.T) {
	tests := []struct {
		name, info string
		want       int
		ok         bool
	}{
		{"nested", "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nPid:\t12\nNSpid:\t12\t3\n", 3, true},
		{"deeper", "Pid:\t12\nNSpid:\t12\t3\t1\n", 3, true},
		{"flat", "Pid:\t12\nNSpid:\t12\n", 12, true},
		{"gone", "Pid:\t-1\nNSpid:\t-1\n", -1, false},
		{"empty", "NSpid:\n", 0, false},
		{"none", "pos:\t0\n", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := jail.ParseNSpidForTest([]byte(tt.info)); got != tt.want || ok != tt.ok {
				t.Errorf("got %d, %t; want %d, %t", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func FuzzParseNSpid(f *testing.F) {
	f.Add([]byte("NSpid:\t12\t3\n"))
	f.Fuzz(func(t *testing.T, info []byte) {
		if n, ok := jail.ParseNSpidForTest(info); ok && n <= 0 {
			t.Errorf("%q gave pid %d", info, n)
		}
	})
}
