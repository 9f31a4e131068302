package mcp

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/answer"
)

// outcome is a result for programs. Some clients give models this and not the text, so it
// has the output too.
type outcome struct {
	CallID   string            `json:"call_id,omitempty"`
	Status   client.CallStatus `json:"status"`
	Title    string            `json:"title,omitempty"`
	Output   string            `json:"output"`
	IsError  bool              `json:"is_error,omitempty"`
	Code     client.Code       `json:"code,omitempty"`
	Metadata map[string]any    `json:"metadata,omitempty"`
	// LeftOut names what of the metadata is too long for a result.
	LeftOut []string `json:"metadata_left_out,omitempty"`
	// NextOffset is for WaitTool, of a call that goes on.
	NextOffset *int64 `json:"next_offset,omitempty"`
}

// outputSchema is the schema of an outcome.
var outputSchema = json.RawMessage(`{
	"type": "object",
	"properties": {
		"call_id": {"type": "string", "description": "The id of the call, for the tool wait and for resources."},
		"status": {"type": "string", "enum": ["pending", "running", "completed", "error"]},
		"title": {"type": "string"},
		"output": {"type": "string", "description": "The text of the result."},
		"is_error": {"type": "boolean"},
		"code": {"type": "string", "description": "What kind of error it is."},
		"metadata": {"type": "object"},
		"metadata_left_out": {"type": "array", "items": {"type": "string"}},
		"next_offset": {"type": "integer", "description": "Where the output goes on, for the tool wait."}
	},
	"required": ["status", "output"]
}`)

// maxMetadata is how many bytes of JSON one value of the metadata may have in a result: a
// diff is for people, and in the API.
const maxMetadata = 2 << 10

// maxImages bounds the bytes of all attachments of one result that are given as content.
const maxImages = 8 << 20

// finished is the result of a call that has ended.
func (s *Server) finished(c *client.Call) *sdk.CallToolResult {
	out := outcome{CallID: c.ID, Status: c.Status, Title: c.Title, Output: c.Output, IsError: c.IsError}
	if c.Error != nil {
		out.Code = c.Error.Code
	}
	out.Metadata, out.LeftOut = shortMetadata(c.Metadata)
	content := []sdk.Content{&sdk.TextContent{Text: c.Output}}
	content = append(content, attachments(c.Attachments)...)
	if _, cut := c.Metadata["output_path"]; cut {
		content = append(content, outputLink(c))
	}
	return &sdk.CallToolResult{Content: content, StructuredContent: out, IsError: c.IsError}
}

// shortMetadata keeps the values that are short, and names the others.
func shortMetadata(all map[string]any) (short map[string]any, left []string) {
	short = make(map[string]any)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if b, err := json.Marshal(all[k]); err == nil && len(b) <= maxMetadata {
			short[k] = all[k]
		} else {
			left = append(left, k)
		}
	}
	return short, left
}

// attachments are images and sounds as such, and other files as embedded resources.
func attachments(all []client.Attachment) (content []sdk.Content) {
	total := 0
	for _, a := range all {
		data, err := dataOf(a.URL)
		if total += len(data); err != nil || total > maxImages {
			content = append(content, &sdk.TextContent{Text: fmt.Sprintf("(%q, %s, %d bytes, is too large for this answer)", a.Filename, a.MIME, len(data))})
			continue
		}
		switch kind, _, _ := strings.Cut(a.MIME, "/"); kind {
		case "image":
			content = append(content, &sdk.ImageContent{Data: data, MIMEType: a.MIME})
		case "audio":
			content = append(content, &sdk.AudioContent{Data: data, MIMEType: a.MIME})
		default:
			content = append(content, &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{
				URI: worktreeURI(a.Filename), MIMEType: a.MIME, Blob: data,
			}})
		}
	}
	return content
}

// dataOf reads a data: URL.
func dataOf(url string) ([]byte, error) {
	_, data, ok := strings.Cut(url, ";base64,")
	if !ok {
		return nil, errors.New("not a data URL in base64")
	}
	return base64.StdEncoding.DecodeString(data)
}

// failed is the result where there is no call. A model reads what to do next.
func failed(err error) *sdk.CallToolResult {
	out := outcome{Status: client.CallError, Output: err.Error(), IsError: true, Code: client.CodeInternal}
	if e := answer.Of(err); e != nil {
		out.Output, out.Code = e.Text(), e.Code
	}
	return &sdk.CallToolResult{
		Content:           []sdk.Content{&sdk.TextContent{Text: out.Output}},
		StructuredContent: out, IsError: true,
	}
}
