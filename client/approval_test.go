package client_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/client"
)

// Approvals are followed over daemons that leave and break off, to an error that none mends.
func TestFollowApprovals(t *testing.T) {
	gone := says(404, `{"code":"not_found","message":"gone"}`)
	for name, tt := range map[string]struct {
		next []func(http.ResponseWriter)
		want []int64
		kind client.Kind
	}{
		"a daemon leaves": {
			[]func(http.ResponseWriter){says(200, "\n"+`{"id":1}`+"\n"), says(503, ""), breaks(`{"id":2}` + "\n" + `{"id":`), says(200, `{"id":3}`+"\n"), gone},
			[]int64{1, 2, 3},
			client.NotFound,
		},
		"not JSON":   {[]func(http.ResponseWriter){says(200, `{"id":1}`+"\n<html>\n")}, []int64{1}, client.Internal},
		"none there": {[]func(http.ResponseWriter){gone}, nil, client.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			c, a := answering(t, tt.next...)
			var got []int64
			var last error
			for one, err := range c.FollowApprovals(t.Context()) {
				if last = err; err == nil {
					got = append(got, one.ID)
				}
			}
			if !slices.Equal(got, tt.want) || client.KindOf(last) != tt.kind {
				t.Errorf("approvals %v, then %v; want %v, %q", got, last, tt.want, tt.kind)
			}
			if diff := cmp.Diff(slices.Repeat([]string{"GET /v1/approvals?follow=1"}, len(tt.next)), a.seen); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}
