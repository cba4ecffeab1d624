// Package template has what sandboxes are made from: images and snapshots with
// a name, and how they were built.
package template
