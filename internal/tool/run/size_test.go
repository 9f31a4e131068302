package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/internal/tool/run/root"
)

// A large file is edited within a bounded time and memory.
func TestEditLarge(t *testing.T) {
	env, dir := fileEnv(t)
	line := []byte("some line of text that is in the file many times\n")
	text := bytes.Repeat(line, 30<<20/len(line))
	text = append(text, "  the needle\n    is here\n"...)
	writeFile(t, dir+"/f", string(text))
	r := mustCall(t, env, Edit{}, object{"file_path": "f", "old_string": "the needle\n  is here", "new_string": "found\n  it"})
	if r.Metadata["strategy"] != "line_trimmed" || !strings.HasSuffix(contentOf(t, dir+"/f"), "\n  found\n    it\n") {
		t.Errorf("%+v", r)
	}
	if err := os.Truncate(dir+"/f", maxEdit+1); err != nil {
		t.Fatal(err)
	}
	r, err := callTool(t, env, Edit{}, object{"file_path": "f", "old_string": "a", "new_string": "b"})
	if err != nil || !r.IsError || !strings.Contains(r.Output, "at most 32 MiB. Use bash") {
		t.Errorf("too large: %+v, %v", r, err)
	}
	// Replacing all of it needs nothing of what is there.
	if r := mustCall(t, env, Write{}, object{"file_path": "f", "content": "new"}); contentOf(t, dir+"/f") != "new" {
		t.Errorf("%+v", r)
	}
}

// The session's limit for a file holds for all that write one.
func TestFileSizeLimit(t *testing.T) {
	env, dir := fileEnv(t)
	env.OutputDir = "/out"
	if err := os.Mkdir(filepath.Join(filepath.Dir(dir), "out"), 0o755); err != nil {
		t.Fatal(err)
	}
	env.MaxFileSize = 10
	writeFile(t, dir+"/f", "12345678")
	writeFile(t, dir+"/bom", "\uFEFFx")
	writeFile(t, dir+"/../out/small", "0123456789")
	writeFile(t, dir+"/../out/large", "01234567890")
	for _, tc := range []struct {
		tool  Tool
		input object
		ok    bool
	}{
		{Write{}, object{"file_path": "new", "content": "0123456789"}, true},
		{Write{}, object{"file_path": "new", "content": "01234567890"}, false},
		{Write{}, object{"file_path": "bom", "content": "0123456789"}, false},
		{Edit{}, object{"file_path": "f", "old_string": "8", "new_string": "8910"}, false},
		{Edit{}, object{"file_path": "f", "old_string": "8", "new_string": "890"}, true},
		{Edit{}, object{"file_path": "made", "old_string": "", "new_string": "01234567890"}, false},
		{FilePut{}, object{"from": "/out/small", "path": "put"}, true},
		{FilePut{}, object{"from": "/out/large", "path": "put"}, false},
	} {
		r, err := callTool(t, env, tc.tool, tc.input)
		if err != nil || r.IsError == tc.ok || !tc.ok && !strings.Contains(r.Output, "limit for a file is 10") {
			t.Errorf("%s %v: %+v, %v", tc.tool.Name(), tc.input, r, err)
		}
	}
	if _, err := os.Stat(dir + "/made"); err == nil {
		t.Error("a file was made")
	}
}

// What reads files whole waits for the memory that others hold, no longer than
// the call may take, and gives back what it held however it ends.
func TestMemoryIsShared(t *testing.T) {
	env, dir := fileEnv(t)
	png := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00"), make([]byte, 100)...)
	writeFile(t, dir+"/png", string(png))
	writeFile(t, dir+"/f", "a\n")
	tools := map[string]struct {
		tool  Tool
		input string
	}{
		"edit":  {Edit{}, `{"file_path":"f","old_string":"a","new_string":"a"}`},
		"same":  {Edit{}, `{"file_path":"f","old_string":"no","new_string":"b"}`},
		"write": {Write{}, `{"file_path":"f","content":"a\n"}`},
		"new":   {Write{}, `{"file_path":"new/f","content":"x"}`},
		"read":  {Read{}, `{"file_path":"png"}`},
	}
	all, err := env.Root.Reserve(t.Context(), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range tools {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := c.tool.Run(ctx, env, json.RawMessage(c.input), nil)
		cancel()
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeAborted {
			t.Errorf("%s without memory: %v", name, err)
		}
	}
	all.Release()
	all.Release()
	for range 3 {
		for name, c := range tools {
			_, err := c.tool.Run(t.Context(), env, json.RawMessage(c.input), nil)
			if err != nil && name != "edit" {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if all, err = env.Root.Reserve(ctx, 1<<40); err != nil {
		t.Fatalf("something is still held: %v", err)
	}
	all.Release()
	// What a result holds is its owner's to give back.
	var kept []*root.Reservation
	env.Keep = func(v *root.Reservation) { kept = append(kept, v) }
	mustCall(t, env, Read{}, object{"file_path": "png"})
	if len(kept) != 1 {
		t.Fatalf("%d kept", len(kept))
	}
	kept[0].Shrink(1)
	kept[0].Release()
}
