package shipped

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// wire is a protocol by which agents ask models.
type wire interface {
	read(body []byte) (*Question, error)
	// say answers with a text, and call with calls.
	say(w io.Writer, text string)
	call(w io.Writer, calls []Asked)
}

// Question is a request of an agent.
type Question struct {
	Offers  []Offer
	Results map[string]string // the text of what came back, by the id of the call
	body    []byte
}

// Offer is a tool that an agent offers to a model.
type Offer struct {
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

// Times is how often a text stands in the strings of the request.
func (q *Question) Times(text string) int {
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
func offered(tool json.RawMessage, within string) []Offer {
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
	all := []Offer{{within + cmp.Or(t.Name, t.Function.Name, t.Type), t.Parameters}}
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

func (chat) read(body []byte) (*Question, error) {
	var r struct {
		Tools    []json.RawMessage
		Messages []struct {
			Role    string
			ID      string `json:"tool_call_id"`
			Content json.RawMessage
		}
	}
	q := &Question{Results: map[string]string{}, body: body}
	err := json.Unmarshal(body, &r)
	for _, t := range r.Tools {
		q.Offers = append(q.Offers, offered(t, "")...)
	}
	for _, msg := range r.Messages {
		if msg.Role == "tool" {
			q.Results[msg.ID] = plainText(msg.Content)
		}
	}
	return q, err
}

func (chat) chunk(w io.Writer, delta object, finish any) {
	event(w, "", object{"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}}})
}

func (c chat) say(w io.Writer, text string) {
	c.chunk(w, object{"role": "assistant", "content": text}, nil)
	c.chunk(w, object{}, "stop")
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func (c chat) call(w io.Writer, calls []Asked) {
	var items []object
	for i, a := range calls {
		items = append(items, object{"index": i, "id": a.ID, "type": "function", "function": object{"name": a.Name, "arguments": a.Args}})
	}
	c.chunk(w, object{"role": "assistant", "tool_calls": items}, nil)
	c.chunk(w, object{}, "tool_calls")
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// responses is Responses of OpenAI.
type responses struct{}

func (responses) read(body []byte) (*Question, error) {
	var r struct {
		Tools []json.RawMessage
		Input []struct {
			Type   string
			ID     string `json:"call_id"`
			Output json.RawMessage
		}
	}
	q := &Question{Results: map[string]string{}, body: body}
	err := json.Unmarshal(body, &r)
	for _, t := range r.Tools {
		q.Offers = append(q.Offers, offered(t, "")...)
	}
	for _, item := range r.Input {
		if item.Type == "function_call_output" {
			q.Results[item.ID] = plainText(item.Output)
		}
	}
	return q, err
}

func (responses) answer(w io.Writer, items ...object) {
	event(w, "response.created", object{"type": "response.created", "response": object{"id": "r"}})
	for _, item := range items {
		event(w, "response.output_item.done", object{"type": "response.output_item.done", "item": item})
	}
	event(w, "response.completed", object{"type": "response.completed", "response": object{
		"id": "r", "usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
	}})
}

func (r responses) say(w io.Writer, text string) {
	r.answer(w, object{"type": "message", "role": "assistant", "id": "m", "content": []object{{"type": "output_text", "text": text}}})
}

func (r responses) call(w io.Writer, calls []Asked) {
	var items []object
	for _, c := range calls {
		item := object{"type": "function_call", "id": "f" + c.ID, "call_id": c.ID, "name": c.Name, "arguments": c.Args}
		if c.Namespace != "" {
			item["namespace"] = c.Namespace
		}
		items = append(items, item)
	}
	r.answer(w, items...)
}

// messages is Messages of Anthropic.
type messages struct{}

func (messages) read(body []byte) (*Question, error) {
	var r struct {
		Tools []struct {
			Name, Type string
			Schema     json.RawMessage `json:"input_schema"`
		}
		Messages []struct{ Content json.RawMessage }
	}
	q := &Question{Results: map[string]string{}, body: body}
	err := json.Unmarshal(body, &r)
	for _, t := range r.Tools {
		q.Offers = append(q.Offers, Offer{cmp.Or(t.Name, t.Type), t.Schema})
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
				q.Results[p.ID] = plainText(p.Content)
			}
		}
	}
	return q, err
}

func (messages) answer(w io.Writer, why string, blocks ...func(i int)) {
	event(w, "message_start", object{"type": "message_start", "message": object{
		"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []object{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": 1, "output_tokens": 1},
	}})
	for i, block := range blocks {
		block(i)
		event(w, "content_block_stop", object{"type": "content_block_stop", "index": i})
	}
	event(w, "message_delta", object{"type": "message_delta", "delta": object{"stop_reason": why, "stop_sequence": nil}, "usage": object{"output_tokens": 1}})
	event(w, "message_stop", object{"type": "message_stop"})
}

func (m messages) say(w io.Writer, text string) {
	m.answer(w, "end_turn", func(i int) {
		event(w, "content_block_start", object{"type": "content_block_start", "index": i, "content_block": object{"type": "text", "text": ""}})
		event(w, "content_block_delta", object{"type": "content_block_delta", "index": i, "delta": object{"type": "text_delta", "text": text}})
	})
}

func (m messages) call(w io.Writer, calls []Asked) {
	var blocks []func(int)
	for _, c := range calls {
		blocks = append(blocks, func(i int) {
			event(w, "content_block_start", object{"type": "content_block_start", "index": i, "content_block": object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}}})
			event(w, "content_block_delta", object{"type": "content_block_delta", "index": i, "delta": object{"type": "input_json_delta", "partial_json": c.Args}})
		})
	}
	m.answer(w, "tool_use", blocks...)
}

// generate is generateContent of Google.
type generate struct{ stream bool }

func (generate) read(body []byte) (*Question, error) {
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
	q := &Question{Results: map[string]string{}, body: body}
	err := json.Unmarshal(body, &r)
	for _, t := range r.Tools {
		for _, f := range t.Functions {
			o := Offer{f.Name, f.Schema}
			if o.Schema == nil {
				o.Schema = f.Parameters
			}
			q.Offers = append(q.Offers, o)
		}
	}
	for _, c := range r.Contents {
		for _, p := range c.Parts {
			if p.Result != nil {
				var of struct{ Output, Error string }
				_ = json.Unmarshal(p.Result.Response, &of) // else it is told as it is
				q.Results[p.Result.ID] = cmp.Or(of.Output, of.Error, string(p.Result.Response))
			}
		}
	}
	return q, err
}

func (g generate) answer(w io.Writer, parts ...object) {
	a := object{
		"candidates":    []object{{"index": 0, "finishReason": "STOP", "content": object{"role": "model", "parts": parts}}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}, "modelVersion": "m",
	}
	if g.stream {
		event(w, "", a)
		return
	}
	_ = json.NewEncoder(w).Encode(a) // an agent that is gone is found by the next answer
}

func (g generate) say(w io.Writer, text string) { g.answer(w, object{"text": text}) }

func (g generate) call(w io.Writer, calls []Asked) {
	var parts []object
	for _, c := range calls {
		parts = append(parts, object{"functionCall": object{"id": c.ID, "name": c.Name, "args": json.RawMessage(c.Args)}})
	}
	g.answer(w, parts...)
}
