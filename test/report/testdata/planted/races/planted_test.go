package planted

import "testing"

func TestPlanted(t *testing.T) {
	n, done := 0, make(chan int)
	go func() { n++; done <- 0 }()
	n++
	<-done
	t.Log(n)
}
