package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/strictjson"
)

// Answer is what a hook says.
type Answer struct {
	Deny   bool
	Reason string          // for who is denied; at most 16 KiB
	Input  json.RawMessage // CallBefore: instead of the input that it was shown
	Output *string         // CallAfter: instead of the output that it was shown
}

// Outcome is what came of a hook, for metrics: ok, denied, replaced, or failed where there
// is no answer.
func (a *Answer) Outcome() string {
	switch {
	case a == nil:
		return "failed"
	case a.Deny:
		return "denied"
	case a.Input != nil || a.Output != nil:
		return "replaced"
	}
	return "ok"
}

// maxReason is the longest reason, in bytes.
const maxReason = 16 << 10

// maxHookOutput is the longest output, in bytes, that a hook may put into the
// place of a call's.
const maxHookOutput = 1 << 20

// answerKeys are the keys that an answer to each event may have.
var answerKeys = map[string][]string{
	CallBefore:     {"action", "reason", "input"},
	CallAfter:      {"output"},
	SessionCreated: {"action", "reason"},
	SessionEnded:   nil,
}

// readAnswer reads a hook's answer. Only a hook that decides about a call has to
// give one; for the others silence is consent. Everything that is not exactly
// an answer is an error: half an answer must not let a call through.
func readAnswer(on string, text []byte) (*Answer, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		if on == CallBefore {
			return nil, errors.New(`it is empty; {"action": "allow"} lets the call go on`)
		}
		return &Answer{}, nil
	}
	fields, err := exactObject(text, answerKeys[on])
	if err != nil {
		return nil, err
	}
	a := &Answer{}
	a.Input, _ = fields["input"].(json.RawMessage)
	var action string
	for key, to := range map[string]any{"action": &action, "reason": &a.Reason, "output": &a.Output} {
		raw, ok := fields[key].(json.RawMessage)
		if !ok {
			continue
		}
		if raw[0] != '"' || json.Unmarshal(raw, to) != nil {
			return nil, fmt.Errorf("%q is not a string", key)
		}
	}
	return a, a.check(on, action)
}

// check checks the parts of an answer against each other.
func (a *Answer) check(on, action string) error {
	a.Reason = strings.TrimSpace(plain.Cut(a.Reason, maxReason))
	switch action {
	case "allow":
	case "deny":
		a.Deny = true
		if a.Input != nil {
			return errors.New(`"deny" and an "input" go together in no way`)
		}
	case "":
		if on == CallBefore {
			return errors.New(`"action" is missing; it is "allow" or "deny"`)
		}
	default:
		return fmt.Errorf(`"action" is %q and not "allow" or "deny"`, plain.Cut(action, maxName))
	}
	if a.Output != nil && len(*a.Output) > maxHookOutput {
		return fmt.Errorf(`"output" has %d bytes; at most %d`, len(*a.Output), maxHookOutput)
	}
	return nil
}

// exactObject reads a JSON object that has no key twice and none but these, in
// exactly this spelling.
func exactObject(text []byte, keys []string) (map[string]any, error) {
	shape := &strictjson.Shape{Fields: make(map[string]*strictjson.Shape)}
	for _, key := range keys {
		shape.Fields[key] = &strictjson.Shape{Raw: true}
	}
	if text[0] != '{' {
		return nil, errors.New("it is not a JSON object")
	}
	v, err := strictjson.Read(text, strictjson.Rules{Depth: 1, Values: 1 + len(keys), Shape: shape, Lax: true})
	if err == nil {
		return v.(map[string]any), nil
	}
	switch err.Kind {
	case strictjson.Unknown:
		return nil, fmt.Errorf("key %q does not belong to an answer to this event", plain.Cut(err.Key, maxName))
	case strictjson.Twice:
		return nil, fmt.Errorf("key %q stands twice", err.Key)
	case strictjson.Trailing:
		return nil, errors.New("something follows the JSON object")
	}
	return nil, errors.New("it is not JSON")
}
