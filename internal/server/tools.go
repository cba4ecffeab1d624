package server

import (
	"net/http"
	"net/url"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/server/access"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/session/tool"
	"github.com/carboy-sandbox/carboy/internal/session/toolspec"
)

// maxAttachments is the size of a body with as many attachments as there may
// be, in base64, and room for their names.
const maxAttachments = tools.MaxAttachmentsTotal/3*4 + 2<<20

func (s *Server) postTool(w http.ResponseWriter, r *http.Request) {
	onSession(s, w, r, func(all Sessions, c access.Caller, id string) (any, error) {
		b, err := wire.Large(r, tool.MaxRequest)
		if err != nil {
			return nil, err
		}
		return all.Tool(r.Context(), c, id, r.PathValue("tool"), b)
	})
}

func (s *Server) postAttachments(w http.ResponseWriter, r *http.Request) {
	onSession(s, w, r, func(all Sessions, c access.Caller, id string) (tools.AttachmentsDelivered, error) {
		var in tools.AttachmentsIn
		b, err := wire.Large(r, maxAttachments)
		if err == nil {
			err = wire.DecodeBytes(b, &in)
		}
		if err != nil {
			return tools.AttachmentsDelivered{}, err
		}
		return all.Deliver(r.Context(), c, id, in)
	})
}

func (s *Server) postCollect(w http.ResponseWriter, r *http.Request) {
	onSession(s, w, r, func(all Sessions, c access.Caller, id string) (tools.Collected, error) {
		var q tools.CollectRequest
		if err := wire.Decode(r, &q, false); err != nil {
			return tools.Collected{}, err
		}
		return all.Collect(r.Context(), c, id, q)
	})
}

func (s *Server) deleteAttachments(w http.ResponseWriter, r *http.Request) {
	onSession(s, w, r, func(all Sessions, c access.Caller, id string) (tools.Purged, error) {
		return all.Purge(r.Context(), c, id)
	})
}

// getSessionTools answers what a model is to be told, whether there are sessions
// or not: a platform may ask before it has one.
func (s *Server) getSessionTools(w http.ResponseWriter, r *http.Request) {
	q, err := query(r, "query_id")
	var list tools.ToolList
	if err == nil {
		list, err = toolspec.List("", url.Values(q).Get("query_id"))
	}
	answer(w, http.StatusOK, list, err)
}
