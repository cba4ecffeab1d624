// Package template keeps what sandboxes are made from: images and snapshots
// with a name, and how they were built. It builds them inside sandboxes, never
// on the host: each step that writes anything runs in a sandbox of its own that
// starts from the step before, and is kept as a snapshot for the next build.
//
// Sandboxes and snapshots of builds belong to an owner of their own, which no
// caller is. Names, tags, files and everything else belong to whoever made
// them; of others' templates a caller sees those that are public, and nothing
// says whether there are more.
//
// Steps, files and output are hostile. Archives are bounded and read here only
// to say where their members go; what a build prints is bounded and escaped;
// commands run behind a wall and, where nothing else was set, without a
// network. The package speaks no protocol: guests are reached by a port.
package template
