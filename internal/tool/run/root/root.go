// Package root opens files below one directory and never outside it, with the
// ids of the tool user, whatever the tree below does meanwhile.
//
// It uses openat2 from a held descriptor. Go's os.Root is not enough: under
// gVisor it follows a symlink out of its root, because openat with
// O_NOFOLLOW|O_DIRECTORY follows links there.
package root

// Root is the sandbox's root directory as file tools see it. The file system
// calls run on threads of their own whose effective ids are the tool user's, so
// every method may be called from any goroutine.
type Root struct{}
