// Package manifest reads a user's own configuration of the walls in which agents run.
//
// A bottle says of what a sandbox is made, and what may be reached from it: wall, image,
// policy, names of secrets, git remotes with their keys, limits, whether it is supervised.
// An agent says who works in one: provider, prompt, skills, files. Each stage has a type
// of its own: an Index is what all files say, a Manifest is one agent with its bottle,
// nothing left open, and a Plan is what would be done, each line with its reason and the
// place that says so.
//
// Bottles come from the user's configuration alone. A repository may ship agents, and what
// they may reach has to be proved to lie within their bottle. Its files are somebody
// else's work: they are opened beneath it, by no link, and are bounded.
//
// It refuses keys that it does not know, names that lead nowhere, and whatever could be
// read in two ways, with the file, the line and the column. It runs nothing, asks nobody,
// and knows no value of a secret.
package manifest
