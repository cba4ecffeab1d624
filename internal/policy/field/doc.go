// Package field knows header fields and parameters by what servers make of
// their names. CGI and its heirs turn a hyphen into an underscore, PHP a dot
// and a space too, others look at no case, cut a name at a NUL or take a list
// out of brackets: a name that is compared as it was written is another name
// to the server. There is one table here, for whoever has to recognise a name,
// and one way to fold a name before it is looked up.
package field
