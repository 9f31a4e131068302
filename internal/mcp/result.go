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
	"github.com/toold/toold/internal/plain"
)

// MetaKey is the key of _meta under which a result has an outcome. It is no structured content:
// of the clients that know it most give models that JSON in place of the text or beside it, and
// some lose pictures by it.
const MetaKey = "toold/call"

// outcome is what programs can read of a result.
type outcome struct {
	CallID   string            `json:"call_id,omitempty"`
	Status   client.CallStatus `json:"status"`
	Title    string            `json:"title,omitempty"`
	Code     client.Code       `json:"code,omitempty"`
	Metadata map[string]any    `json:"metadata,omitempty"`
	// LeftOut names what of the metadata is too long for a result.
	LeftOut []string `json:"metadata_left_out,omitempty"`
	// NextOffset is for WaitTool, of a call that goes on.
	NextOffset *int64 `json:"next_offset,omitempty"`
}

// result has a text for models, and what else belongs to it.
func (o outcome) result(isError bool, text string, more ...sdk.Content) *sdk.CallToolResult {
	return &sdk.CallToolResult{
		Meta:    sdk.Meta{MetaKey: o},
		Content: append([]sdk.Content{&sdk.TextContent{Text: text}}, more...),
		IsError: isError,
	}
}

// maxMetadata is how many bytes of JSON one value of the metadata may have in a result: a
// diff is for people, and in the API.
const maxMetadata = 2 << 10

// maxImages bounds the bytes of all attachments of one result that are given as content.
const maxImages = 8 << 20

// finished is the result of a call that has ended.
func (s *Server) finished(c *client.Call) *sdk.CallToolResult {
	out := outcome{CallID: c.ID, Status: c.Status, Title: c.Title}
	if c.Error != nil {
		out.Code = c.Error.Code
	}
	out.Metadata, out.LeftOut = shortMetadata(c.Metadata)
	more := attachments(c.Attachments)
	if _, cut := c.Metadata["output_path"]; cut {
		more = append(more, outputLink(c))
	}
	return out.result(c.IsError, c.Output, more...)
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
			content = append(content, &sdk.TextContent{Text: fmt.Sprintf("(%q, %s, %s, is too large for this answer)", a.Filename, a.MIME, plain.Count(len(data), "byte", "bytes"))})
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
	out, text := outcome{Status: client.CallError, Code: client.CodeInternal}, err.Error()
	if e := answer.Of(err); e != nil {
		out.Code, text = e.Code, e.Text()
	}
	return out.result(true, text)
}
