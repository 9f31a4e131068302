// Package store keeps sessions, calls and events on disk, in one SQLite
// database. A write that returned survives the death of the daemon.
package store

// Store is the database. All methods may be called from any goroutine.
type Store struct{}
