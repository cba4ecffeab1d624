// Package docs holds the documentation to what the product does. It runs what
// the documents show, compares their flags with those that there are, follows
// their links, and looks up each test that they name. It judges no prose.
//
// A console block with the comment <!-- test --> on the line above is run. A
// line that starts with "$ " is a command, lines that start with "> " continue
// it, and the others are what it prints on both streams: "..." stands for any
// text, and on a line of its own for any lines. A command exits with 0, or as
// a comment at its end says: "# exits 124". The blocks of one document run in
// their order, by one shell, in a world of their own: for root that is a network,
// too, with a few sites in it and nothing else. A block with <!-- test as root -->
// is left out for others.
package docs
