// Command agent lets a model work in a session of toold: a whole agent loop, to copy and change.
//
//	MODEL_KEY=KEY go run ./examples/agent MODEL "$PWD" 'the task'
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/toold/toold/client"
)

// object is a message of the Messages API, or a part of one.
type object = map[string]any

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: agent MODEL DIRECTORY TASK; DIRECTORY begins with /")
	}
	if err := work(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

// work makes a session, gives the model its tools, and makes the calls that it asks for until
// it asks for none.
func work(ctx context.Context, model, dir, task string) error {
	toold := client.New(client.Options{Socket: os.Getenv("TOOLD_SOCKET")})
	s, err := toold.CreateSession(ctx, client.SessionCreate{Worktree: client.Worktree{Source: dir}})
	if err != nil {
		return err
	}
	defer func() { _, _ = toold.EndSession(ctx, s.ID, client.EndOptions{}) }()
	tools, err := toold.ToolsFormat(ctx, client.ToolQuery{Session: s.ID}, "anthropic")
	if err != nil {
		return err
	}
	brief, err := toold.Brief(ctx, s.ID)
	if err != nil {
		return err
	}
	messages := []object{{"role": "user", "content": task}}
	for {
		var answer struct{ Content []object }
		if err := ask(ctx, object{"model": model, "max_tokens": 8192, "system": brief, "tools": tools, "messages": messages}, &answer); err != nil {
			return err
		}
		var results []object
		for _, part := range answer.Content {
			switch part["type"] {
			case "text":
				fmt.Println(part["text"])
			case "tool_use":
				results = append(results, call(ctx, toold, s.ID, part))
			}
		}
		if len(results) == 0 {
			return nil
		}
		messages = append(messages, object{"role": "assistant", "content": answer.Content}, object{"role": "user", "content": results})
	}
}

// call makes one call. Its key makes it the same call however often it is sent.
func call(ctx context.Context, toold *client.Client, session string, part object) object {
	id, name := fmt.Sprint(part["id"]), fmt.Sprint(part["name"])
	input, _ := json.Marshal(part["input"]) // it came as JSON
	c, err := toold.CreateCall(ctx, session, client.CallCreate{Key: id, Tool: name, Input: input}, client.CallOptions{})
	if err != nil { // there is no call
		c = &client.Call{Output: err.Error(), IsError: true}
	}
	fmt.Fprintf(os.Stderr, "%s %s\n%s\n", name, input, c.Output)
	return object{"type": "tool_result", "tool_use_id": id, "content": c.Output, "is_error": c.IsError}
}

// ask sends one request to the model, and reads its answer.
func ask(ctx context.Context, request, answer any) error {
	body, _ := json.Marshal(request) // it is made of texts and of what came as JSON
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, cmp.Or(os.Getenv("MODEL_URL"), "https://api.anthropic.com/v1/messages"), bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Anthropic-Version": {"2023-06-01"}, "X-Api-Key": {os.Getenv("MODEL_KEY")}}
	resp, err := (&http.Client{Timeout: 10 * time.Minute}).Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the model answers %s", resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}
