package offer

import (
	"context"
	"sync"
)

// Standing is a service that is offered until it is ended.
type Standing struct {
	end    context.CancelFunc
	up     chan struct{}
	served sync.WaitGroup
}

// Stand offers a service in the background, as Serve does; what o.Told is told it hears as well.
func Stand(o Options) *Standing {
	ctx, end := context.WithCancel(context.Background())
	s := &Standing{end: end, up: make(chan struct{})}
	told := o.Told
	var once sync.Once
	o.Told = func(err error) {
		if err == nil {
			once.Do(func() { close(s.up) })
		}
		if told != nil {
			told(err)
		}
	}
	o.Again = nil // it ends by End alone
	s.served.Go(func() { _ = Serve(ctx, o) })
	return s
}

// Up is closed when the service first stands.
func (s *Standing) Up() <-chan struct{} { return s.up }

// End ends the offer, and returns once no call is served any more.
func (s *Standing) End() {
	s.end()
	s.served.Wait()
}
