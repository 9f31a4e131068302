package tool

import (
	"encoding/json"

	"github.com/toold/toold/client"
)

// maxWords is more than any command of a formatter has.
const maxWords = 1024

// fileFormatTool is a formatter's work on one file: a hook of file.edited. Only the daemon makes
// such calls.
func fileFormatTool() *Definition {
	return &Definition{
		Name:        "file_format",
		Description: "Runs a formatter over a file that a call has changed.",
		By:          ByDaemon,
		Hidden:      true,
		Traits:      changes,
		Paged:       true,
		Truncate:    truncateHead,
		decode:      aFormat,
		input: object(
			required("call", text(1, 0, "The id of the call that has changed the file.")),
			required("command", listOf(text(0, 0, ""), maxWords, "The program and its arguments.")),
			required("file_path", text(1, maxPath, "The file, absolute.")),
			required("timeout", integer(0, maxCount, "Milliseconds that the program may take.")),
		),
	}
}

// Format is the input of a formatter's call.
type Format struct {
	Call          string   `json:"call"`      // that has changed the file
	Command       []string `json:"command"`   // the words of the hook
	File          string   `json:"file_path"` // absolute, links resolved
	TimeoutMillis int64    `json:"timeout"`
}

func aFormat(v values) Input {
	in := &Format{Call: v.text("call"), File: v.text("file_path"), TimeoutMillis: v.number("timeout")}
	words, _ := v["command"].([]any) // the schema wants texts
	for _, w := range words {
		word, _ := w.(string)
		in.Command = append(in.Command, word)
	}
	return in
}

// Request is the call for it.
func (in *Format) Request() client.CallCreate {
	input, _ := json.Marshal(in) // never fails for texts and a number
	return client.CallCreate{Tool: fileFormatTool().Name, Input: input}
}

// Access implements Input: it changes the file that its call has changed. The program is the
// administrator's, so that no rule for commands is about it.
func (in *Format) Access(*Reader) Access {
	return Access{Requests: []Request{{Permission: PermissionEdit, Pattern: in.File, Path: in.File, Write: true}}, Prepare: true}
}
