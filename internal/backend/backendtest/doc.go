// Package backendtest is the suite that every wall passes whole.
//
// It drives a wall through sandbox.Backend alone, and what runs inside through
// the guest agent's own protocols, as the daemon does. It knows nothing of how
// a wall is made: where walls may differ, Options says which way, and where a
// machine lacks something, the wall's own Check must say so.
//
// What must not get through is tried a second time where nothing forbids it,
// and has to get through there: a probe that finds nothing anywhere proves
// nothing.
package backendtest
