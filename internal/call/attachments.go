package call

import (
	"encoding/base64"
	"regexp"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool/run"
)

var mimePattern = regexp.MustCompile(`^[a-z0-9.+-]{1,64}/[a-z0-9.+-]{1,64}$`)

// Bounds of attachments; the agent's own are lower.
const (
	maxAttachments     = 16
	maxAttachmentBytes = 20 << 20
)

// attachments makes data: URLs of what the agent sent.
func attachments(in []run.Attachment) []client.Attachment {
	var out []client.Attachment
	for _, a := range in {
		if len(out) == maxAttachments || len(a.Data) > maxAttachmentBytes {
			break
		}
		mime := a.MIME
		if !mimePattern.MatchString(mime) {
			mime = "application/octet-stream"
		}
		out = append(out, client.Attachment{
			Filename: shown(strings.ReplaceAll(a.Filename, "/", "_")), MIME: mime,
			URL: dataURL(mime, a.Data),
		})
	}
	return out
}

// dataURL is made without a copy: a may be large.
func dataURL(mime string, a []byte) string {
	var b strings.Builder
	b.Grow(len("data:;base64,") + len(mime) + base64.StdEncoding.EncodedLen(len(a)))
	b.WriteString("data:" + mime + ";base64,")
	e := base64.NewEncoder(base64.StdEncoding, &b)
	_, _ = e.Write(a) // a strings.Builder takes everything
	_ = e.Close()
	return b.String()
}
