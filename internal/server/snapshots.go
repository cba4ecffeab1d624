package server

import (
	"context"
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

func snapshotView(s sandbox.Snapshot) api.Snapshot {
	image, digest := splitImage(s.Image)
	return api.Snapshot{
		ID: s.ID, Owner: s.Owner, Image: image, ImageDigest: digest, Parent: s.Parent, Source: s.Source,
		Size: s.Size, Shared: s.Shared, Notes: s.Notes, CreatedAt: s.CreatedAt,
	}
}

func (s *Server) postSnapshot(w http.ResponseWriter, r *http.Request) {
	snap, err := s.m.Snapshot(r.Context(), principalOf(r).caller, r.PathValue("id"))
	answer(w, http.StatusCreated, snapshotView(snap), err)
}

func (s *Server) listSnapshots(w http.ResponseWriter, r *http.Request) {
	list, err := s.m.Snapshots(r.Context(), principalOf(r).caller)
	out := make([]api.Snapshot, 0, len(list))
	for _, snap := range list {
		out = append(out, snapshotView(snap))
	}
	answer(w, http.StatusOK, out, err)
}

func (s *Server) getSnapshot(w http.ResponseWriter, r *http.Request) {
	snap, err := s.m.GetSnapshot(r.Context(), principalOf(r).caller, r.PathValue("id"))
	answer(w, http.StatusOK, snapshotView(snap), err)
}

func (s *Server) deleteSnapshot(w http.ResponseWriter, r *http.Request) {
	if err := s.m.RemoveSnapshot(r.Context(), principalOf(r).caller, r.PathValue("id")); err != nil {
		wire.Error(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// base resolves what a create is to lie over: an image, or a snapshot and the
// image below it, which need not be named then. Who may not use the host's own
// programs may not by way of a snapshot either.
func (s *Server) base(ctx context.Context, p *principal, image, snapshot string) (string, error) {
	if snapshot == "" || image != "" {
		return s.image(ctx, p, image)
	}
	if p.hostImage() {
		return "", nil // the domain knows
	}
	snap, err := s.m.GetSnapshot(ctx, p.caller, snapshot)
	if err != nil || snap.Image != sandbox.DefaultImage {
		return snap.Image, err
	}
	return s.image(ctx, p, sandbox.DefaultImage)
}
