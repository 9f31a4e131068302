// Package server is toold's HTTP API over a Unix socket: who asks, what they may
// ask, whether the request is well formed, and how answers and errors look on
// the wire. What a request does is behind the interfaces of API.
//
// The whole API is one table, routes in route.go. To add a route: 1. a line
// there, 2. its handler in the file of its noun, or by asked or removed the method of
// API that does it, 3. its method in package client,
// 4. `go test ./internal/server -run OpenAPI -update` for api/openapi.json. The
// tests fail for a route that lacks one of these.
//
// A request passes these steps, each trusting only the ones before it: the
// connection's peer is known and below its caps (peer.go), the request is free
// of ambiguity (server.go), the route exists, the principal may use it
// (identity.go), its parameters are known and well formed (params.go), its body
// is strict JSON of the route's type (body.go, strict.go); then the handler runs.
// Every error takes the same way out (problem.go).
package server
