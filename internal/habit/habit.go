// Package habit knows what agents do with what they are given before their models see it, by the
// names that their clients say of themselves. What stands here was seen of the shipped programs:
// test/agents fails where one of them does otherwise.
package habit

import "strings"

// Habit is what an agent does. Its zero value passes on everything as it is.
type Habit struct {
	// Client begins the name that the agent's client says of itself.
	Client string
	// Text is how many bytes of one text reach its model, whatever its settings are; 0 = all that
	// there may be. toold cuts its answers below that itself, and says what is left out.
	Text int
	// Checks: it checks inputs by the schemas before it sends them, so that a field by another
	// system's name, which is taken here, would be refused there.
	Checks bool
	// Quotes: of a result that is an error it gives its model the whole JSON of the protocol as one
	// text, so that tabs, quotes and line breaks are escaped, some twice.
	Quotes bool
	// Meta is what it obeys in the _meta of a tool.
	Meta map[string]any
}

// maxResultChars is more than any text of toold's for a model: outputs are cut at 50 KiB.
const maxResultChars = 100_000

// Habits are those of the agents that are known.
var Habits = []Habit{
	{Client: "gemini-cli-", Checks: true, Quotes: true},
	{Client: "qwen-", Checks: true, Quotes: true},
	// It puts a text of more into a file, which its model would read with a tool of its own, and
	// gives it 500 bytes of each end.
	{Client: "copilot-cli", Text: 20_000},
	// It would put a long result into such a file too, and have its model search for tools.
	{Client: "claude-code", Meta: map[string]any{"anthropic/maxResultSizeChars": maxResultChars, "anthropic/alwaysLoad": true}},
}

// Of is the habit of the agent whose client has this name.
func Of(client string) Habit {
	for _, h := range Habits {
		if strings.HasPrefix(client, h.Client) {
			return h
		}
	}
	return Habit{}
}

// beside is kept free of Text for what stands beside an output: how it ended, notes and the mark.
const beside = 3 << 10

// Output is how long an output may be, in bytes; 0 = as long as any.
func (h Habit) Output() int { return max(h.Text-beside, 0) }
