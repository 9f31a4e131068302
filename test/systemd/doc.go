// Package systemd tests the units of deploy/systemd under a real systemd. It has
// tests only.
//
// The tests boot one themselves, in namespaces and cgroups of its own, from the
// root file system that scripts/systemd-root makes; the host sees processes and
// nothing else. All of it ends with the tests, however they end.
package systemd
