// Package procid knows a host process again: across restarts of the daemon,
// and although process numbers are used anew.
//
// An ID names one process of one boot. Open turns it into a Handle that
// refers to that very process for as long as it is held, so that a signal
// can't hit a stranger. A zombie is dead: nothing of it runs, whether or not
// somebody reaped it.
//
// The package refuses to act on a bare number: there is no Kill(pid). It
// works for processes of the caller's own pid namespace, the one /proc shows.
package procid
