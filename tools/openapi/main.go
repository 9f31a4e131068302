// Command openapi is a client of toold that stands on nothing but generated code:
// it makes a session, runs a tool in it, reads the answer and ends the session. The
// tests put what oapi-codegen makes of api/openapi.json beside this file, build both
// and run them against a daemon. Its argument is the daemon's socket.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	_ "github.com/oapi-codegen/runtime" // of the generated code
)

func main() {
	log.SetFlags(0)
	ctx := context.Background()
	socket := os.Args[1]
	c, err := NewClientWithResponses("http://toold", WithHTTPClient(&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}))
	check(err)

	memory, ttl := Size(128<<20), Duration(600_000)
	made, err := c.CreateSessionWithResponse(ctx, SessionCreate{Limits: &Limits{Memory: &memory}, Ttl: &ttl})
	check(err)
	if made.JSON201 == nil {
		log.Fatalf("no session: %s", made.Body)
	}
	s := made.JSON201
	fmt.Println("session", s.State, int64(*s.Limits.Memory), int64(*s.Ttl))

	ran, err := c.CreateCallWithResponse(ctx, s.Id, nil, CallCreate{Tool: "bash", Input: map[string]any{"command": "echo generated"}})
	check(err)
	if ran.JSON200 == nil {
		log.Fatalf("no call: %s", ran.Body)
	}
	fmt.Println("call", ran.JSON200.Status, ran.JSON200.Output)

	lost, err := c.GetCallWithResponse(ctx, "call_none")
	check(err)
	fmt.Println("problem", lost.ApplicationproblemJSON4XX.Code)

	ended, err := c.EndSessionWithResponse(ctx, s.Id, nil)
	check(err)
	fmt.Println("session", ended.JSON200.State)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
