package daemon

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// serving are the servers of one daemon.
type serving []*http.Server

// shutdown stops listening, waits until every request has ended or the grace
// is over, and reports which.
func (s serving) shutdown(grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var wg sync.WaitGroup
	ended := make([]bool, len(s))
	for i, srv := range s {
		wg.Go(func() { ended[i] = srv.Shutdown(ctx) == nil })
	}
	wg.Wait()
	for _, ok := range ended {
		if !ok {
			return false
		}
	}
	return true
}

// close breaks every connection.
func (s serving) close() {
	for _, srv := range s {
		_ = srv.Close()
	}
}
