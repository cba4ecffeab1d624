// Package approval is what a person is asked on behalf of a sandbox, and what an
// answer lets through: questions, their life, and the queue in which a gate holds
// what waits for one. It does no I/O.
//
// It refuses more than it can hold, an answer to another question than was asked,
// and all that was asked or granted under a policy that holds no longer.
package approval
