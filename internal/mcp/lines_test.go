package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// TestLines: whatever line a client sends, it is answered or is a message, and the next request
// is answered as if it had not been there.
func TestLines(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	fromAgent, toServer := io.Pipe()
	fromServer, toAgent := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- New(Config{Client: d.client, Session: "ses_1"}).Serve(context.Background(), fromAgent, toAgent)
	}()
	answers := bufio.NewReader(fromServer)
	send := func(text string) {
		_, err := io.WriteString(toServer, text)
		testrig.Must(t, err)
	}
	type answer struct {
		ID    any                 `json:"id"`
		Error *struct{ Code int } `json:"error"`
	}
	next := func() (a answer) {
		line, err := answers.ReadBytes('\n')
		testrig.Must(t, err)
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		return a
	}
	send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n")
	if a := next(); a.ID != "i" || a.Error != nil {
		t.Fatalf("%+v", a)
	}
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n")
	for i, c := range []struct {
		line string
		code int // of an error that is answered; 0: none is
	}{
		{`{"jsonrpc":`, -32700},
		{"npm warn deprecated", -32700},
		{"\x00\xff\x1b[0m", -32700},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"} {"jsonrpc":"2.0","id":1,"method":"ping"}`, -32700},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}}`, -32700},
		{strings.Repeat("x", maxLine+1), -32600},
		{strings.Repeat("[", 100000), -32700},
		{"", 0},
		{" \t\r", 0},
		{"3", -32600},
		{"null", -32600},
		{`"ping"`, -32600},
		{"{}", -32600},
		{"[]", -32600},
		{"[3]", -32600},
		{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, -32600},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600},
		{`{"jsonrpc":"2.0","method":"notifications/nosuch"}`, 0},
		{`{"jsonrpc":"2.0","id":99,"result":{}}`, 0},
	} {
		send(c.line + "\n")
		if c.code != 0 {
			if a := next(); a.Error == nil || a.Error.Code != c.code || a.ID != nil {
				t.Errorf("%.60q: %+v, want %d", c.line, a, c.code)
			}
		}
		send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"p%d","method":"ping"}`+"\r\n", i))
		if a := next(); a.ID != fmt.Sprintf("p%d", i) || a.Error != nil {
			t.Errorf("after %.60q: %+v", c.line, a)
		}
	}
	send(`[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","id":"b","method":"ping"}]` + "\n")
	if a, b := next(), next(); a.ID == b.ID || a.Error != nil || b.Error != nil {
		t.Errorf("a batch: %+v, %+v", a, b)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	valid := `{"jsonrpc":"2.0","id":7,"method":"resources/templates/list","params":{"cursor":"x","_meta":{"progressToken":"p"}}}`
	for i := range 300 {
		line := []byte(valid)
		for range 1 + random.IntN(3) {
			at := random.IntN(len(line))
			switch random.IntN(3) {
			case 0:
				line = append(line[:at], line[at+1:]...)
			case 1:
				line = slices.Insert(line, at, line[random.IntN(len(line))])
			default:
				line[at] = `{}[]",:0an\`[random.IntN(11)]
			}
		}
		send(string(line) + "\n" + fmt.Sprintf(`{"jsonrpc":"2.0","id":"r%d","method":"ping"}`, i) + "\n")
		for next().ID != fmt.Sprintf("r%d", i) {
			// A message may be answered, in any order.
		}
		if t.Failed() {
			t.Fatalf("after %q", line)
		}
	}
	testrig.Must(t, toServer.Close())
	testrig.Must(t, <-done)
}
