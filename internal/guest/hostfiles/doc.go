// Package hostfiles keeps the processes of an instance on the host's own kernel to
// the instance's part of the host's open files.
//
// A limit of descriptors bounds each process, and not how many processes there
// are, nor files without a descriptor: a mapping keeps its file open, and every
// piece of shared memory is one. What an instance holds of them is known to no
// counter. So when the host's files run short, and only then, they are counted
// here, and the processes that hold the most are ended until the rest keep to
// the instance's part. The package refuses to touch an instance that does.
package hostfiles
