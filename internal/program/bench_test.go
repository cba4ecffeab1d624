package program

import "testing"

// BenchmarkFind is what each start of a daemon reads, of programs that are there.
func BenchmarkFind(b *testing.B) {
	all, err := carried()
	if err != nil {
		b.Skip(err)
	}
	d := newHome(b)
	s, err := open(b.Context(), d, all)
	if err != nil {
		b.Fatal(err)
	}
	_ = s.Close()
	for b.Loop() {
		s, err := gather(all, at(d.State).find)
		if err != nil {
			b.Fatal(err)
		}
		_ = s.Close()
	}
}

// BenchmarkUnpack is what the first start of a version does.
func BenchmarkUnpack(b *testing.B) {
	all, err := carried()
	if err != nil {
		b.Skip(err)
	}
	for b.Loop() {
		s, err := open(b.Context(), newHome(b), all)
		if err != nil {
			b.Fatal(err)
		}
		_ = s.Close()
	}
}
