// Package far is what drivers need whose sandboxes are on another host, where nothing of
// this one can be mounted: worktrees that are copied there and back, and connections to
// agents that are carried by others.
//
// A worktree's copy is on record beside that of its sandbox (package state): which
// directory it was, and what went in. So whichever daemon ends the sandbox brings its
// changes back, once. How an archive gets there and back is the driver's own affair.
package far
