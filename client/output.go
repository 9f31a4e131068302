package client

import "unicode/utf8"

// Output is the data of an output event: Text, or Base64 where the bytes are not
// UTF-8. Offset is that of its first byte in the stream.
type Output struct {
	// Stream is "stdout" or "stderr" for a call made with Split, else empty.
	Stream string `json:"stream,omitempty"`
	Offset int64  `json:"offset"`
	Text   string `json:"text,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
	// Missing counts bytes from Offset on that were not kept, in a stream that was
	// taken up again; such an event has no bytes.
	Missing int64 `json:"missing,omitempty"`
}

// NewOutput makes the data of an output event from its bytes.
func NewOutput(stream string, offset int64, p []byte) Output {
	if utf8.Valid(p) {
		return Output{Stream: stream, Offset: offset, Text: string(p)}
	}
	return Output{Stream: stream, Offset: offset, Base64: append([]byte(nil), p...)}
}

// Bytes are the output's bytes, whichever way they came.
func (o Output) Bytes() []byte {
	if len(o.Base64) > 0 {
		return o.Base64
	}
	return []byte(o.Text)
}
