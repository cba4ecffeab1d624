package server

import (
	"context"
	"net/http"
	"time"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/session/access"
	"github.com/carboy-sandbox/carboy/internal/session/tool"
)

// What large bodies may take of memory at a time, in bytes, and for how long one
// waits for its share, and for its reader.
const (
	largeTotal = 400 << 20
	largeWait  = 20 * time.Second
	largeWrite = 2 * time.Minute
)

// Shares: a body, what it is decoded to, and what is made of that.
const (
	toolShare    = 3 * tool.MaxRequest
	deliverShare = maxAttachments + box.MaxAttachmentsTotal
	collectShare = 4 * box.MaxAttachmentsTotal // files, their base64, and the answer
)

// large waits for a share of the memory for large bodies. It is refused with
// Exhausted where others have it for long. The request's answer has to be read
// in time, for nobody to keep a share.
func (s *Server) large(w http.ResponseWriter, r *http.Request, share int64) (release func(), err error) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), largeWait, errLarge)
	defer cancel()
	if err := s.bodies.Acquire(ctx, share); err != nil {
		return nil, context.Cause(ctx)
	}
	rc := http.NewResponseController(w) // some have no deadlines
	_ = rc.SetWriteDeadline(time.Now().Add(s.bodyTime + largeWrite))
	return func() {
		_ = rc.SetWriteDeadline(time.Time{})
		s.bodies.Release(share)
	}, nil
}

var errLarge = &sandbox.Error{
	Kind: sandbox.Exhausted, Msg: "large requests: others are being served", Hint: "try again in a few seconds", Retry: 5 * time.Second,
}

// small is the size of a request that needs no share.
const small = 1 << 20

// onLarge is onSession for requests and answers that may be large.
func onLarge[T any](s *Server, w http.ResponseWriter, r *http.Request, share int64, do func(all Sessions, c access.Caller, id string) (T, error)) {
	if share > 0 {
		release, err := s.large(w, r, share)
		if err != nil {
			wire.Error(w, err)
			return
		}
		defer release()
	}
	onSession(s, w, r, do)
}

// maxAttachments is the size of a body with as many attachments as there may
// be, in base64, and room for their names.
const maxAttachments = box.MaxAttachmentsTotal/3*4 + 2<<20

func (s *Server) postTool(w http.ResponseWriter, r *http.Request) {
	share := int64(toolShare)
	if r.ContentLength >= 0 && r.ContentLength <= small {
		share = 0
	}
	onLarge(s, w, r, share, func(all Sessions, c access.Caller, id string) (any, error) {
		b, err := wire.Large(r, tool.MaxRequest)
		if err != nil {
			return nil, err
		}
		return all.Tool(r.Context(), c, id, r.PathValue("tool"), b)
	})
}

func (s *Server) postAttachments(w http.ResponseWriter, r *http.Request) {
	onLarge(s, w, r, deliverShare, func(all Sessions, c access.Caller, id string) (box.AttachmentsDelivered, error) {
		var in box.AttachmentsIn
		b, err := wire.Large(r, maxAttachments)
		if err == nil {
			err = wire.DecodeBytes(b, &in)
		}
		if err != nil {
			return box.AttachmentsDelivered{}, err
		}
		return all.Deliver(r.Context(), c, id, in)
	})
}

func (s *Server) postCollect(w http.ResponseWriter, r *http.Request) {
	onLarge(s, w, r, collectShare, func(all Sessions, c access.Caller, id string) (box.Collected, error) {
		var q box.CollectRequest
		if err := wire.Decode(r, &q, false); err != nil {
			return box.Collected{}, err
		}
		return all.Collect(r.Context(), c, id, q)
	})
}
