package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// wire is a protocol by which agents ask models.
type wire interface {
	read(body []byte) (*question, error)
	// say answers with a text, and call with calls.
	say(w io.Writer, text string)
	call(w io.Writer, calls []asked)
}

// question is a request of an agent.
type question struct {
	offers  []offer
	results map[string]string // the text of what came back, by the id of the call
	body    []byte
}

// offer is a tool that an agent offers to a model.
type offer struct {
	Name   string          `json:"name"` // with that of its namespace before a slash
	Schema json.RawMessage `json:"schema,omitempty"`
}

// wireOf is the protocol of an address, nil for none.
func wireOf(path string) wire {
	switch {
	case strings.HasSuffix(path, "/responses"):
		return responses{}
	case strings.HasSuffix(path, "/chat/completions"):
		return chat{}
	case strings.HasSuffix(path, "/messages"):
		return messages{}
	case strings.HasSuffix(path, ":streamGenerateContent"):
		return generate{stream: true}
	case strings.HasSuffix(path, ":generateContent"):
		return generate{}
	}
	return nil
}

// times is how often a text stands in the strings of the request.
func (q *question) times(text string) int {
	var v any
	_ = json.Unmarshal(q.body, &v) // it was read before
	return timesIn(v, text)
}

func timesIn(v any, text string) (n int) {
	switch v := v.(type) {
	case string:
		return strings.Count(v, text)
	case []any:
		for _, item := range v {
			n += timesIn(item, text)
		}
	case map[string]any:
		for _, item := range v {
			n += timesIn(item, text)
		}
	}
	return n
}

// plainText is a result as text: a string, or a list of parts.
func plainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct{ Text string }
	if json.Unmarshal(raw, &parts) == nil {
		for _, p := range parts {
			s += p.Text
		}
		return s
	}
	return string(raw)
}

func event(w io.Writer, name string, data any) {
	b, _ := json.Marshal(data)
	if name != "" {
		fmt.Fprintf(w, "event: %s\n", name)
	}
	fmt.Fprintf(w, "data: %s\n\n", b)
}

// offered are a tool, or those of a namespace, as both protocols of OpenAI have them.
func offered(tool json.RawMessage, within string) []offer {
	var t struct {
		Type       string
		Name       string
		Parameters json.RawMessage
		Function   struct {
			Name       string
			Parameters json.RawMessage
		}
		Tools []json.RawMessage
	}
	_ = json.Unmarshal(tool, &t) // tools of other kinds have no name, but a type
	all := []offer{{within + cmp.Or(t.Name, t.Function.Name, t.Type), t.Parameters}}
	if t.Function.Parameters != nil {
		all[0].Schema = t.Function.Parameters
	}
	for _, inner := range t.Tools {
		all = append(all, offered(inner, t.Name+"/")...)
	}
	return all
}

// chat is Chat Completions of OpenAI.
type chat struct{}

func (chat) read(body []byte) (*question, error) {
	var r struct {
		Tools    []json.RawMessage
		Messages []struct {
			Role    string
			ID      string `json:"tool_call_id"`
			Content json.RawMessage
		}
	}
	q := &question{results: map[string]string{}, body: body}
	err := json.Unmarshal(body, &r)
	for _, t := range r.Tools {
		q.offers = append(q.offers, offered(t, "")...)
	}
	for _, msg := range r.Messages {
		if msg.Role == "tool" {
			q.results[msg.ID] = plainText(msg.Content)
		}
	}
	return q, err
}

func (chat) chunk(w io.Writer, delta in, finish any) {
	event(w, "", in{"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []in{{"index": 0, "delta": delta, "finish_reason": finish}}})
}

func (c chat) say(w io.Writer, text string) {
	c.chunk(w, in{"role": "assistant", "content": text}, nil)
	c.chunk(w, in{}, "stop")
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func (c chat) call(w io.Writer, calls []asked) {
	var items []in
	for i, a := range calls {
		items = append(items, in{"index": i, "id": a.id, "type": "function", "function": in{"name": a.name, "arguments": a.args}})
	}
	c.chunk(w, in{"role": "assistant", "tool_calls": items}, nil)
	c.chunk(w, in{}, "tool_calls")
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// responses is Responses of OpenAI.
type responses struct{}

func (responses) read(body []byte) (*question, error) {
	var r struct {
		Tools []json.RawMessage
		Input []struct {
			Type   string
			ID     string `json:"call_id"`
			Output json.RawMessage
		}
	}
	q := &question{results: map[string]string{}, body: body}
	err := json.Unmarshal(body, &r)
	for _, t := range r.Tools {
		q.offers = append(q.offers, offered(t, "")...)
	}
	for _, item := range r.Input {
		if item.Type == "function_call_output" {
			q.results[item.ID] = plainText(item.Output)
		}
	}
	return q, err
}

func (responses) answer(w io.Writer, items ...in) {
	event(w, "response.created", in{"type": "response.created", "response": in{"id": "r"}})
	for _, item := range items {
		event(w, "response.output_item.done", in{"type": "response.output_item.done", "item": item})
	}
	event(w, "response.completed", in{"type": "response.completed", "response": in{
		"id": "r", "usage": in{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
	}})
}

func (r responses) say(w io.Writer, text string) {
	r.answer(w, in{"type": "message", "role": "assistant", "id": "m", "content": []in{{"type": "output_text", "text": text}}})
}

func (r responses) call(w io.Writer, calls []asked) {
	var items []in
	for _, c := range calls {
		item := in{"type": "function_call", "id": "f" + c.id, "call_id": c.id, "name": c.name, "arguments": c.args}
		if c.namespace != "" {
			item["namespace"] = c.namespace
		}
		items = append(items, item)
	}
	r.answer(w, items...)
}

// messages is Messages of Anthropic.
type messages struct{}

func (messages) read(body []byte) (*question, error) {
	var r struct {
		Tools []struct {
			Name, Type string
			Schema     json.RawMessage `json:"input_schema"`
		}
		Messages []struct{ Content json.RawMessage }
	}
	q := &question{results: map[string]string{}, body: body}
	err := json.Unmarshal(body, &r)
	for _, t := range r.Tools {
		q.offers = append(q.offers, offer{cmp.Or(t.Name, t.Type), t.Schema})
	}
	for _, msg := range r.Messages {
		var parts []struct {
			Type    string
			ID      string `json:"tool_use_id"`
			Content json.RawMessage
		}
		_ = json.Unmarshal(msg.Content, &parts) // a text alone is no result
		for _, p := range parts {
			if p.Type == "tool_result" {
				q.results[p.ID] = plainText(p.Content)
			}
		}
	}
	return q, err
}

func (messages) answer(w io.Writer, why string, blocks ...func(i int)) {
	event(w, "message_start", in{"type": "message_start", "message": in{
		"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []in{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": in{"input_tokens": 1, "output_tokens": 1},
	}})
	for i, block := range blocks {
		block(i)
		event(w, "content_block_stop", in{"type": "content_block_stop", "index": i})
	}
	event(w, "message_delta", in{"type": "message_delta", "delta": in{"stop_reason": why, "stop_sequence": nil}, "usage": in{"output_tokens": 1}})
	event(w, "message_stop", in{"type": "message_stop"})
}

func (m messages) say(w io.Writer, text string) {
	m.answer(w, "end_turn", func(i int) {
		event(w, "content_block_start", in{"type": "content_block_start", "index": i, "content_block": in{"type": "text", "text": ""}})
		event(w, "content_block_delta", in{"type": "content_block_delta", "index": i, "delta": in{"type": "text_delta", "text": text}})
	})
}

func (m messages) call(w io.Writer, calls []asked) {
	var blocks []func(int)
	for _, c := range calls {
		blocks = append(blocks, func(i int) {
			event(w, "content_block_start", in{"type": "content_block_start", "index": i, "content_block": in{"type": "tool_use", "id": c.id, "name": c.name, "input": in{}}})
			event(w, "content_block_delta", in{"type": "content_block_delta", "index": i, "delta": in{"type": "input_json_delta", "partial_json": c.args}})
		})
	}
	m.answer(w, "tool_use", blocks...)
}

// generate is generateContent of Google.
type generate struct{ stream bool }

func (generate) read(body []byte) (*question, error) {
	var r struct {
		Tools []struct {
			Functions []struct {
				Name       string
				Parameters json.RawMessage
				Schema     json.RawMessage `json:"parametersJsonSchema"`
			} `json:"functionDeclarations"`
		}
		Contents []struct {
			Parts []struct {
				Result *struct {
					ID       string
					Response json.RawMessage
				} `json:"functionResponse"`
			}
		}
	}
	q := &question{results: map[string]string{}, body: body}
	err := json.Unmarshal(body, &r)
	for _, t := range r.Tools {
		for _, f := range t.Functions {
			o := offer{f.Name, f.Schema}
			if o.Schema == nil {
				o.Schema = f.Parameters
			}
			q.offers = append(q.offers, o)
		}
	}
	for _, c := range r.Contents {
		for _, p := range c.Parts {
			if p.Result != nil {
				var of struct{ Output, Error string }
				_ = json.Unmarshal(p.Result.Response, &of) // else it is told as it is
				q.results[p.Result.ID] = cmp.Or(of.Output, of.Error, string(p.Result.Response))
			}
		}
	}
	return q, err
}

func (g generate) answer(w io.Writer, parts ...in) {
	a := in{
		"candidates":    []in{{"index": 0, "finishReason": "STOP", "content": in{"role": "model", "parts": parts}}},
		"usageMetadata": in{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}, "modelVersion": "m",
	}
	if g.stream {
		event(w, "", a)
		return
	}
	_ = json.NewEncoder(w).Encode(a) // an agent that is gone is found by the next answer
}

func (g generate) say(w io.Writer, text string) { g.answer(w, in{"text": text}) }

func (g generate) call(w io.Writer, calls []asked) {
	var parts []in
	for _, c := range calls {
		parts = append(parts, in{"functionCall": in{"id": c.id, "name": c.name, "args": json.RawMessage(c.args)}})
	}
	g.answer(w, parts...)
}
