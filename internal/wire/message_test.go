package wire

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/toold/toold/internal/tool/run"
)

func TestHeadEncoding(t *testing.T) {
	for _, h := range []Head{
		{},
		{Kind: 1, ID: 23, N: 24, Flag: true},
		{Kind: 255, ID: 255, N: 256},
		{Kind: 24, ID: 65535, N: 65536},
		{Kind: 1, ID: 1<<32 - 1, N: 1 << 32},
		{Kind: 1, ID: 1<<64 - 1, N: 1<<63 - 1},
		{N: -1},
		{N: -1 << 63},
		{N: -300},
	} {
		b := appendHead(nil, h)
		want, err := Marshal(h)
		if err != nil || !bytes.Equal(b, want) {
			t.Errorf("%+v: %x, want %x (%v)", h, b, want, err)
		}
		if h.ID > 1<<63-1 {
			continue
		}
		got, body, err := ParseFrame(append(b, "body"...))
		if err != nil || got != h || string(body) != "body" {
			t.Errorf("%+v: back as %+v, %q, %v", h, got, body, err)
		}
	}
}

// sealed is metadata after its way.
func sealed(m map[string]any) (map[string]any, error) {
	r := run.Result{Encoded: SealResult(&run.Result{Metadata: m}).Encoded}
	err := OpenResult(&r)
	return r.Metadata, err
}

// Metadata that is too large, or cannot be encoded, costs nothing but itself.
func TestMetadataGivesWay(t *testing.T) {
	for _, tt := range []struct {
		name string
		meta map[string]any
		want map[string]any
	}{
		{"none", nil, nil},
		{"fits", map[string]any{"a": "x"}, map[string]any{"a": "x"}},
		{
			"one is large",
			map[string]any{"diff": strings.Repeat("x", MaxMetadata), "path": "/w/f", "created": true},
			map[string]any{"path": "/w/f", "created": true, "metadata_error": "left out: diff (65541 bytes); metadata is at most 65536 bytes"},
		},
		{
			"the larger ones",
			map[string]any{"a": strings.Repeat("x", 40<<10), "b": strings.Repeat("x", 30<<10), "c": strings.Repeat("x", 20<<10)},
			map[string]any{"b": strings.Repeat("x", 30<<10), "c": strings.Repeat("x", 20<<10), "metadata_error": "left out: a (40963 bytes); metadata is at most 65536 bytes"},
		},
		{
			"one cannot be encoded",
			map[string]any{"a": "x", "f": func() {}},
			map[string]any{"a": "x", "metadata_error": "left out: f (cbor: unsupported type: func()); metadata is at most 65536 bytes"},
		},
	} {
		got, err := sealed(tt.meta)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %.300v, %v", tt.name, got, err)
		}
	}
	many := map[string]any{}
	for i := range 3000 {
		many[fmt.Sprint(strings.Repeat("k", 100), i)] = i
	}
	if got, err := sealed(many); err != nil || len(got) < 300 || got["metadata_error"] == nil {
		t.Errorf("many: %d, %v", len(got), err)
	}
}
