// Package search finds files and what is in them, for root filesystems that have
// no ripgrep: the same files, the same lines, in bounded memory.
//
// What counts as the same is ripgrep's behaviour and not git's where the two
// differ, since the caller cannot know which of both engines answers: its globs
// know {a,b} and its classes match a slash, it takes .ignore and .rgignore beside
// .gitignore, and it gives up a binary file by what it happened to read at a time.
// The tests compare both engines, and the globs with git as far as ripgrep does
// what git does.
//
// Everything is opened through a root.Root: with the tool user's ids, and without
// following a link. Trees, names, ignore files and contents are hostile; patterns
// are the caller's and may be too.
package search
