// Package interpreter runs code in cells, as E2B's code interpreter does: the
// server that its clients expect on port 49999 of a sandbox, and that runs in
// there, as the sandbox's user.
//
// Each context is one kernel of Jupyter, a process of its own with a state that
// lasts; the cells of a context run one after the other. One kernel of Python is
// started before anyone asks. What a cell puts out goes to its client as it
// comes; when the client goes away, the cell is interrupted.
//
// It refuses a language that no kernel in the sandbox speaks, and says what
// there is; fields and contexts that it does not know; and output without end.
// It holds no secret and trusts nobody: every caller that reaches its port may run code,
// which is all that it does. The daemon decides who reaches the port.
package interpreter
