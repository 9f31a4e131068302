package tool

import (
	_ "embed"
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"
)

//go:embed batch.md
var batchDescription string

const (
	// MaxBatch is how many calls of a batch are made. Each further one is refused by itself.
	MaxBatch = 25
	// maxBatchGiven bounds those that are answered at all.
	maxBatchGiven = 200
	// BatchLooped is in the metadata of a batch of which calls were stopped as loops: their number.
	BatchLooped = "looped"
)

func batchTool() *Definition {
	return &Definition{
		Name:        "batch",
		Description: batchDescription,
		By:          ByDaemon,
		alike:       []string{"multitooluse", "multitooluseparallel", "parallel", "multicall"},
		also: aliases{
			tools: []string{"multitooluse.parallel"},
			fields: map[string]string{
				"tool_calls": "calls", "tool_uses": "calls", "invocations": "calls", "calls/name": "tool", "calls/recipient_name": "tool",
				"calls/parameters": "input", "calls/arguments": "input", "calls/args": "input",
			},
		},
		Traits:   Traits{Destructive: true, OpenWorld: true, NoSlot: true, OwnDeadline: true},
		Truncate: truncateHead,
		Paged:    true,
		decode:   aBatch,
		input: object(
			required("calls", listOf(object(
				required("tool", text(1, 0, "The name of the tool.")),
				required("input", anything("The input of that tool.")),
			), maxBatchGiven, "The calls to make, at most 25.")),
		),
	}
}

// anything is any object.
func anything(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", Description: description}
}

// Batch is the input of batch.
type Batch struct{ Calls []BatchCall }

// BatchCall is one call of a Batch. Its input is checked when it is made.
type BatchCall struct {
	Tool  string
	Input json.RawMessage
}

func aBatch(v values) Input {
	in := &Batch{}
	list, _ := v["calls"].([]any)
	for _, item := range list {
		c, _ := item.(map[string]any) // the schema wants objects
		input, _ := json.Marshal(c["input"])
		in.Calls = append(in.Calls, BatchCall{values(c).text("tool"), input})
	}
	return in
}

// Access implements Input. What its calls touch they say themselves.
func (in *Batch) Access(*Reader) Access { return asWhole(PermissionBatch) }
