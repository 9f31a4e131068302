// Package client holds the wire types of toold's HTTP API, its error codes, and
// a Go client for it. It is what toolctl is built on and what other programs
// import; it depends on the standard library alone.
//
// Every JSON name here is part of the API's contract: others script against it.
package client
