package e2b

import (
	"net/http"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

const (
	maxRefresh = time.Hour
	minRefresh = defaultTimeoutV1
)

func (h *handler) remove(w http.ResponseWriter, r *http.Request, c Caller) error {
	sb, err := h.find(r, c)
	if err == nil {
		err = h.m.Remove(r.Context(), c.Caller, sb.ID, true)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (h *handler) timeout(w http.ResponseWriter, r *http.Request, c Caller) error {
	var req struct {
		Timeout *int32 `json:"timeout"`
	}
	if err := wire.Decode(r, &req, false); err != nil {
		return err
	}
	if req.Timeout == nil {
		return sandbox.Errorf(sandbox.Invalid, "timeout: it is missing")
	}
	ttl, err := seconds("timeout", req.Timeout, 0)
	if err != nil {
		return err
	}
	sb, err := h.running(r, c)
	if err == nil {
		_, err = h.m.SetTTL(r.Context(), c.Caller, sb.ID, ttl)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (h *handler) refresh(w http.ResponseWriter, r *http.Request, c Caller) error {
	var req struct {
		Duration *int32 `json:"duration"`
	}
	if err := wire.Decode(r, &req, true); err != nil {
		return err
	}
	ttl, err := seconds("duration", req.Duration, defaultTimeoutV1)
	if err != nil {
		return err
	}
	if ttl > maxRefresh {
		return sandbox.Errorf(sandbox.Invalid, "duration: from 0 to %d seconds", int(maxRefresh.Seconds()))
	}
	sb, err := h.running(r, c)
	if err == nil {
		_, err = h.extend(r, c, sb, max(ttl, minRefresh))
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// extend gives a sandbox at least ttl from now; it takes none away.
func (h *handler) extend(r *http.Request, c Caller, sb *sandbox.Sandbox, ttl time.Duration) (*sandbox.Sandbox, error) {
	if sb.ExpiresAt.IsZero() || sb.ExpiresAt.After(h.now().Add(ttl)) {
		return sb, nil
	}
	return h.m.SetTTL(r.Context(), c.Caller, sb.ID, ttl)
}

// running is find for what E2B knows of running sandboxes alone: a paused one
// is not found by it.
func (h *handler) running(r *http.Request, c Caller) (*sandbox.Sandbox, error) {
	sb, err := h.find(r, c)
	if err == nil && stateOf(sb) == statePaused {
		return nil, sandbox.Errorf(sandbox.NotFound, "sandbox %s: it is paused", sb.ID).
			WithHint("connect to it: that resumes it")
	}
	return sb, err
}

// notKept is the notice of a pause that was to keep memory.
const notKept = "memory: files are kept, processes are not, as this wall can't: resuming starts the sandbox anew over its files"

func (h *handler) pause(w http.ResponseWriter, r *http.Request, c Caller) error {
	var req struct {
		Memory *bool `json:"memory"` // whether processes are to go on where they were; E2B's clients always say so
	}
	if err := wire.Decode(r, &req, true); err != nil {
		return err
	}
	sb, err := h.find(r, c)
	if err != nil {
		return err
	}
	memory := req.Memory == nil || *req.Memory
	_, kept, err := h.m.Pause(r.Context(), c.Caller, sb.ID, memory)
	if err != nil {
		return err
	}
	if memory && !kept {
		w.Header().Set(api.HeaderNotice, notKept)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// resume starts a paused sandbox; one that runs is a conflict.
func (h *handler) resume(w http.ResponseWriter, r *http.Request, c Caller) error {
	var req struct {
		Timeout   *int32 `json:"timeout"`
		AutoPause *bool  `json:"autoPause"`
		Memory    *bool  `json:"memory"` // false: without what it had in memory
	}
	if err := wire.Decode(r, &req, true); err != nil {
		return err
	}
	ttl, err := seconds("timeout", req.Timeout, defaultTimeoutV1)
	if err != nil {
		return err
	}
	sb, err := h.find(r, c)
	if err != nil {
		return err
	}
	if stateOf(sb) != statePaused {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: it is running already", sb.ID)
	}
	if req.AutoPause != nil {
		if _, err := h.m.SetOnExpiry(r.Context(), c.Caller, sb.ID, onExpiry(*req.AutoPause, true)); err != nil {
			return err
		}
	}
	if sb, err = h.wake(w, r, c, sb, ttl, req.Memory); err != nil {
		return err
	}
	wire.JSON(w, http.StatusCreated, h.created(sb, c))
	return nil
}

func onExpiry(pause, memory bool) sandbox.OnExpiry {
	switch {
	case pause && memory:
		return sandbox.OnExpiryPause
	case pause:
		return sandbox.OnExpiryStop
	}
	return sandbox.OnExpiryRemove
}

// wake starts a paused sandbox, which then has ttl to live. One whose memory
// was kept goes on from it, and a notice says where that went wrong.
func (h *handler) wake(w http.ResponseWriter, r *http.Request, c Caller, sb *sandbox.Sandbox, ttl time.Duration, memory *bool) (*sandbox.Sandbox, error) {
	if memory != nil && !*memory && sb.Suspended {
		return nil, sandbox.Errorf(sandbox.Unsupported, "memory: sandbox %s goes on from what it had in memory, or not at all", sb.ID).
			WithHint("leave it out; pause with memory false to start from files alone")
	}
	if _, err := h.m.SetTTL(r.Context(), c.Caller, sb.ID, ttl); err != nil {
		return nil, err
	}
	had := sb.Suspended
	sb, err := h.m.Start(r.Context(), c.Caller, sb.ID)
	if err == nil && had && len(sb.Lost) > 0 {
		w.Header().Set(api.HeaderNotice, "memory: it could not be used: the sandbox was started anew over its files")
	}
	return sb, err
}

// connect returns how to reach a sandbox, and resumes it where it is paused.
// The first form of the call needs a body.
func (h *handler) connect(v1 bool) func(http.ResponseWriter, *http.Request, Caller) error {
	return func(w http.ResponseWriter, r *http.Request, c Caller) error {
		var req struct {
			Timeout *int32 `json:"timeout"`
			Memory  *bool  `json:"memory"` // false: without what it had in memory
		}
		if err := wire.Decode(r, &req, !v1); err != nil {
			return err
		}
		if v1 && req.Timeout == nil {
			return sandbox.Errorf(sandbox.Invalid, "timeout: it is missing")
		}
		ttl, err := seconds("timeout", req.Timeout, defaultTimeoutV2)
		if err != nil {
			return err
		}
		sb, err := h.find(r, c)
		if err != nil {
			return err
		}
		status := http.StatusOK
		if stateOf(sb) == statePaused {
			status = http.StatusCreated
			sb, err = h.wake(w, r, c, sb, ttl, req.Memory)
		} else {
			sb, err = h.extend(r, c, sb, ttl)
		}
		if err != nil {
			return err
		}
		wire.JSON(w, status, h.created(sb, c))
		return nil
	}
}
