package langbot

// gated is a keeper whose writes wait for something first, or fail.
type gated struct {
	keeper
	before func(workspace string) error
}

func (g gated) save(m mark) error {
	if err := g.before(m.Workspace); err != nil {
		return err
	}
	return g.keeper.save(m)
}

// BeforeWrites has before called with a workspace's name each time when what is
// kept of it is to be written; an error of it is that of the write. It is for a
// handler that serves nobody yet.
func (h *Handler) BeforeWrites(before func(workspace string) error) {
	h.fence.ledger = gated{h.fence.ledger, before}
}
