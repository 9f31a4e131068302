// Package api holds the description of toold's HTTP API.
package api

import _ "embed"

// OpenAPI is the API's OpenAPI 3.1 document. It is generated from the server's
// table of routes and the types of package client, and a test keeps it so.
//
//go:embed openapi.json
var OpenAPI []byte
