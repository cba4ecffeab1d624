// Package project reads a project's own file, .carboy.toml: what its sandboxes are
// to be like, as the project has it. The file came with somebody's source, or an
// agent wrote it, so it can only ask: what it widens beyond a sandbox's defaults is
// taken when the user has allowed that very text, for that very directory.
//
// It refuses files of others, links, keys that it does not know, paths of this
// machine and values of secrets. Of a workspace and of directories of the host the
// file has no say.
package project
