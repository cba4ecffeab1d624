// Package mcpgateway makes one MCP server of several that run inside a
// sandbox: the gateway that E2B's clients start there and reach on port 50005.
// It starts each over its standard input and output, and passes on their
// tools, prompts and resources, notifications, progress and cancellation.
//
// Servers come from a repository on GitHub, with the commands that install and
// run them, or are named in a catalogue that the operator has
// written. What is in neither is refused, as are fields that nothing asks for.
// A server is bounded in what it lists and how long its messages are; one that
// crashes is started once more, and clients are told. Requests need the token.
//
// Servers run as the sandbox's user and have its network, which the sandbox's
// gate decides on. They are not asked what they want of a client: sampling,
// elicitation and roots are not passed on.
package mcpgateway
