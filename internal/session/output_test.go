package session

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

func TestOutputIsCutAndKept(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	for _, tt := range []struct {
		name, command string
		bytes, lines  int64
	}{
		{"by lines", "lines 3000 0", 28890, 3000},
		{"by bytes", "big 900000", 900000, 56250},
		{"one line", "giant 300000", 300000, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := h.call(s.ID, bashCall(tt.command))
			if c.Metadata["truncated"] != true || c.Metadata["total_bytes"] != tt.bytes || c.Metadata["total_lines"] != tt.lines {
				t.Errorf("metadata %v", c.Metadata)
			}
			if want := "/run/toold/output/" + c.ID; c.Metadata["output_path"] != want || !strings.Contains(c.Output, want) || !strings.Contains(c.Output, "with read or grep") {
				t.Errorf("path %v; marker in %q", c.Metadata["output_path"], c.Output)
			}
			if n := len(c.Output); n > 51200+500 {
				t.Errorf("the result has %d bytes", n)
			}
			end := strings.LastIndexByte(strings.TrimRight(c.Output, "\n"), '\n') + 1
			mark := c.Output[end:]
			if !strings.HasPrefix(mark, "[") || strings.Count(c.Output, mark) != 2 {
				t.Errorf("the last line is no mark of a cut as in the middle: %q", mark)
			}
			whole, shown := h.output(c.ID), strings.TrimSuffix(c.Output[:end], "\n")
			whole = strings.TrimSuffix(whole, "\n")
			if int64(len(h.output(c.ID))) != tt.bytes || !strings.HasPrefix(whole, shown[:1000]) || !strings.HasSuffix(whole, shown[len(shown)-1000:]) {
				t.Errorf("the whole has %d bytes and does not begin or end like the result", len(whole))
			}
			fi, err := os.Stat(filepath.Join(h.dir, "output", s.ID, c.ID))
			if err != nil || fi.Mode() != 0o644 {
				t.Errorf("file: %v, %v", fi, err)
			}
		})
	}
	for dir, want := range map[string]os.FileMode{"output": 0o700, "output/" + s.ID: 0o755} {
		if fi, err := os.Stat(filepath.Join(h.dir, dir)); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", dir, fi.Mode(), err, want)
		}
	}
	// Short outputs leave no file.
	if c := h.call(s.ID, bashCall("echo x")); c.Metadata["output_path"] != nil {
		t.Errorf("metadata %v", c.Metadata)
	}
	if n := len(mustReadDir(t, filepath.Join(h.dir, "output", s.ID))); n != 3 {
		t.Errorf("%d files, want 3", n)
	}
}

func mustReadDir(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestOutputOfOtherToolsIsCutToo(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	write := client.CallCreate{Tool: "write", Input: json.RawMessage(`{"file_path":"long","content":""}`)}
	c := h.call(s.ID, write)
	if c.Metadata["truncated"] != true || strings.Count(c.Output, "a line") != 2000 || strings.HasSuffix(c.Output, "a line of text\n") {
		t.Errorf("metadata %v, %d lines", c.Metadata, strings.Count(c.Output, "a line"))
	}
	if out := h.output(c.ID); strings.Count(out, "\n") != 5000 {
		t.Errorf("%d lines are kept", strings.Count(out, "\n"))
	}
	// What an agent claims about files of the daemon's is not believed.
	write.Input = json.RawMessage(`{"file_path":"lie","content":""}`)
	if c := h.call(s.ID, write); c.Metadata["truncated"] != false || c.Metadata["output_path"] != nil {
		t.Errorf("metadata %v", c.Metadata)
	}
	// Searches say themselves whether they leave results out.
	if c := h.call(s.ID, client.CallCreate{Tool: "grep", Input: json.RawMessage(`{"pattern":"x"}`)}); c.Metadata["truncated"] != true {
		t.Errorf("grep: metadata %v", c.Metadata)
	}
	// What the tool has cut to size itself is left alone, but for what no tool of
	// ours sends.
	c = h.call(s.ID, readCall("long"))
	if c.Metadata["truncated"] != false || c.Output != strings.Repeat("a line of text\n", 5000) || c.Metadata["output_path"] != nil {
		t.Errorf("page: metadata %v, %d bytes", c.Metadata, len(c.Output))
	}
	c = h.call(s.ID, readCall("endless"))
	if c.Metadata["truncated"] != true || len(c.Output) > 4*51200+1000 || c.Metadata["total_bytes"] != int64(600000) || c.Metadata["total_lines"] != int64(40000) {
		t.Errorf("endless page: metadata %v, %d bytes", c.Metadata, len(c.Output))
	}
	if c := h.call(s.ID, readCall("lie")); c.Metadata["truncated"] != true || c.Metadata["output_path"] != nil || c.Metadata["total_bytes"] != nil ||
		c.Metadata["total_lines"] != 7 { // of the file, which only the tool knows
		t.Errorf("page with claims: metadata %v", c.Metadata)
	}
	if c := h.call(s.ID, readCall("picture")); len(c.Attachments) != 2 || c.Attachments[0].URL != "data:image/png;base64,cG5n" ||
		c.Attachments[0].Filename != "a_b.png" || c.Attachments[1].MIME != "application/octet-stream" {
		t.Errorf("attachments %+v", c.Attachments)
	}
}

// TestRedrawsAreLeftOut: what a model reads is what a terminal would show in the end, and what is missing
// is counted; the whole output has each byte.
func TestRedrawsAreLeftOut(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	printed := "\rget 1%\rget 100%\n\x1b[31mred\x1b[0m\n"
	c := h.call(s.ID, bashCall(fmt.Sprintf("bytes %x", printed)))
	want := "get 100%\nred\n(not shown: 2 redraws of lines and 2 control sequences; /run/toold/output/" + c.ID + " has the output as it was printed)"
	if c.Output != want || c.Metadata["redraws"] != int64(2) || c.Metadata["control_sequences"] != int64(2) || h.output(c.ID) != printed {
		t.Errorf("%q, want %q, %v, raw %q", c.Output, want, c.Metadata, h.output(c.ID))
	}
	// A file is shown as it is.
	h.host.box(s.ID).prepared = &run.Prepared{
		Targets: []run.Target{{Asked: "x", Path: "/workspace/x"}}, Result: &run.Result{Output: "1\t\x1b[31ma\rb\n"},
	}
	if c = h.call(s.ID, readCall("x")); c.Output != "1\t\x1b[31ma\rb\n" || c.Metadata["redraws"] != nil {
		t.Errorf("read: %q, %v", c.Output, c.Metadata)
	}
}

// TestNULIsShownAsASign: what a model reads has no NUL, the whole output has each.
func TestNULIsShownAsASign(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	c := h.call(s.ID, bashCall("bytes 610062000a"))
	if c.Output != "a␀b␀\n" || c.Metadata["nul_bytes"] != int64(2) || h.output(c.ID) != "a\x00b\x00\n" {
		t.Errorf("%q, %v, raw %q", c.Output, c.Metadata, h.output(c.ID))
	}
	h.host.box(s.ID).prepared = &run.Prepared{
		Targets: []run.Target{{Asked: "x", Path: "/workspace/x"}}, Result: &run.Result{Output: "1\ta\x00b\n"},
	}
	if c = h.call(s.ID, readCall("x")); c.Output != "1\ta␀b\n" || c.Metadata["nul_bytes"] != int64(1) || h.output(c.ID) != "1\ta\x00b\n" {
		t.Errorf("read: %q, %v, raw %q", c.Output, c.Metadata, h.output(c.ID))
	}
	h.host.box(s.ID).prepared.Result = &run.Result{Output: "plain\n"}
	if c = h.call(s.ID, readCall("x")); c.Metadata["nul_bytes"] != nil {
		t.Errorf("without one: %v", c.Metadata)
	}
	h.host.box(s.ID).prepared = nil
	h.host.fail("prepare", run.Errorf(run.CodeStale, "a\x00b"))
	if c = h.call(s.ID, readCall("x")); strings.Contains(c.Output+c.Error.Message, "\x00") {
		t.Errorf("error: %q", c.Output)
	}
	h.host.fail("prepare", nil)
	// Where the whole cannot be kept, what is shown is not given out as the whole.
	h.reload(func(set *Settings) { set.MinFree = 1 << 62 })
	c = h.call(s.ID, bashCall("bytes 0000"))
	if _, _, err := h.m.calls.Output(t.Context(), alice, c.ID, client.OutputQuery{}); codeOfErr(err) != client.CodeNotFound || c.Output != "␀␀" {
		t.Errorf("not kept: %v, %q", err, c.Output)
	}
}

func TestWrongBytesAreKeptRaw(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	c := h.call(s.ID, bashCall("bytes 61ff62e282; exit 1"))
	if c.Output != "a\uFFFDb\uFFFD\nexit code 1" || !utf8.ValidString(c.Output) || c.Metadata["truncated"] != false {
		t.Errorf("output %q, metadata %v", c.Output, c.Metadata)
	}
	if got := h.output(c.ID); got != "a\xffb\xe2\x82" {
		t.Errorf("raw %q", got)
	}
}

// TestOutputForAgent: to an agent that passes on less to its model an output is cut here, with the way to the
// rest, and read is told how short its pages are to be.
func TestOutputForAgent(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	for name, most := range map[string]int{"": 31_000, "claude-code": 31_000, "copilot-cli": 20_000} {
		as := func(r *client.CallCreate) { r.Agent = name }
		if c := h.call(s.ID, with(bashCall("big 30000"), as)); len(c.Output) > most || len(c.Output) < most-most/5 || c.Metadata["truncated"] != (most < 31_000) {
			t.Errorf("%q is given %d bytes, %v", name, len(c.Output), c.Metadata)
		}
		if c := h.call(s.ID, with(readCall("endless"), as)); len(c.Output) > 5*(50<<10) || most < 31_000 && len(c.Output) > most {
			t.Errorf("%q is given a page of %d bytes", name, len(c.Output))
		}
		if got := string(h.host.box(s.ID).lastRequest().Settings); strings.Contains(got, "page_bytes") != (most < 31_000) {
			t.Errorf("read for %q has the settings %s", name, got)
		}
	}
}

func TestSpillCaps(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		kept   int64
		says   string
	}{
		{"one file", func(s *Settings) { s.Truncate.SpillFile = 200000 }, 200000, "one output may have"},
		{"all files", func(s *Settings) { s.Truncate.SpillSession = 300000 }, 300000, "all outputs of a session"},
		{"free space", func(s *Settings) { s.MinFree = 1 << 62 }, 0, "must stay"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			tt.change(&h.set)
			h.open()
			s := h.create(alice, client.SessionCreate{})
			c := h.call(s.ID, bashCall("big 1000000"))
			if c.Status != client.CallCompleted || c.IsError || c.Metadata["total_bytes"] != int64(1000000) {
				t.Errorf("call %v %v %v", c.Status, c.Error, c.Metadata)
			}
			if why, _ := c.Metadata["output_incomplete"].(string); !strings.Contains(why, tt.says) || !strings.Contains(c.Output, tt.says) {
				t.Errorf("the result does not say that %q: %v", tt.says, c.Metadata)
			}
			r, total, err := h.m.calls.Output(t.Context(), alice, c.ID, client.OutputQuery{})
			if tt.kept == 0 && codeOfErr(err) != client.CodeNotFound || tt.kept > 0 && (err != nil || total != tt.kept) {
				t.Errorf("%d bytes are kept, %v, want %d", total, err, tt.kept)
			}
			if err == nil {
				r.Close()
			}
			if shown := beforeMark(t, c.Output); !strings.HasSuffix(shown, "abcde\n") && !strings.HasSuffix(shown, "0\n") {
				t.Errorf("the end of the output is missing: …%q", shown[max(len(shown)-40, 0):])
			}
		})
	}
}

func TestSpillThatCannotBeWritten(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	if err := os.RemoveAll(filepath.Join(h.dir, "output", s.ID)); err != nil {
		t.Fatal(err)
	}
	c := h.call(s.ID, bashCall("big 400000; exit 2"))
	if c.Status != client.CallCompleted || c.Metadata["exit_code"] != int64(2) || c.Metadata["output_path"] != nil {
		t.Errorf("call %v, %v", c.Status, c.Metadata)
	}
	if !strings.Contains(c.Output, "could not be saved: no such file or directory") || strings.Contains(c.Output, h.dir) {
		t.Errorf("the result does not say it, or names a path of the host: %q", c.Output[25000:26500])
	}
}

func TestSplitStreams(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	c, err := h.m.calls.Call(t.Context(), alice, s.ID, bashCall("echo one; err two; echo three; err four"), call.Options{Split: true})
	if err != nil || c.Output != "one\ntwo\nthree\nfour\n" {
		t.Fatalf("call %+v, %v", c, err)
	}
	for _, tt := range []struct {
		stream string
		offset int64
		want   string
	}{
		{"stdout", 0, "one\nthree\n"}, {"stderr", 0, "two\nfour\n"}, {"stderr", 2, "o\nfour\n"}, {"stdout", 5, "hree\n"}, {"stdout", 99, ""}, {"", 0, c.Output},
	} {
		r, _, err := h.m.calls.Output(t.Context(), alice, c.ID, client.OutputQuery{Stream: tt.stream, Offset: tt.offset})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s from %d: %q, %v, want %q", tt.stream, tt.offset, got, err, tt.want)
		}
		r.Close()
	}
	c, err = h.m.calls.Call(t.Context(), alice, s.ID, bashCall("exit 1"), call.Options{Split: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // told, and stored
		r, n, err := h.m.calls.Output(t.Context(), alice, c.ID, client.OutputQuery{Stream: "stderr"})
		if err != nil || n != 0 {
			t.Fatalf("of a call that printed nothing: %d bytes, %v", n, err)
		}
		r.Close()
		h.settled()
	}
	if n := len(mustReadDir(t, filepath.Join(h.dir, "output", s.ID))); n != 2 {
		t.Errorf("%d files, want 2", n)
	}
	plain := h.call(s.ID, bashCall("echo x"))
	if _, _, err := h.m.calls.Output(t.Context(), alice, plain.ID, client.OutputQuery{Stream: "stderr"}); codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("stream of a call that is not split: %v", err)
	}
}

func TestOutputFollows(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	for _, command := range []string{"echo first; hold; echo second", "big 200000; hold; echo second"} {
		c := h.background(s.ID, command)
		box := h.host.box(s.ID)
		r, _, err := h.m.calls.Output(t.Context(), alice, c.ID, client.OutputQuery{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		part := make([]byte, 4)
		if _, err := io.ReadFull(r, part); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(command, "echo") {
			testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
			box.release()
		} else {
			// More than the agent may keep: it holds only after this has read.
			go box.pass()
		}
		rest, err := io.ReadAll(r)
		if err != nil || !strings.HasSuffix(string(rest), "second\n") {
			t.Errorf("%q: rest …%q, %v", command, rest[max(0, len(rest)-10):], err)
		}
		r.Close()
		if whole := h.output(c.ID); whole != string(part)+string(rest) {
			t.Errorf("%q: followed %d bytes, saved %d", command, 4+len(rest), len(whole))
		}
	}
}

func TestOutputOffsets(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	short, long := h.call(s.ID, bashCall("echo 0123456789; exit 1")), h.call(s.ID, bashCall("big 200000"))
	for _, tt := range []struct {
		id   string
		at   int64
		want int
	}{{short.ID, 4, 7}, {short.ID, 999, 0}, {long.ID, 199990, 10}, {long.ID, 1 << 40, 0}} {
		r, _, err := h.m.calls.Output(t.Context(), alice, tt.id, client.OutputQuery{Offset: tt.at})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); err != nil || len(b) != tt.want {
			t.Errorf("from %d: %d bytes, %v, want %d", tt.at, len(b), err, tt.want)
		}
		r.Close()
	}
	if _, _, err := h.m.calls.Output(t.Context(), alice, short.ID, client.OutputQuery{Offset: -1}); codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("negative offset: %v", err)
	}
	if _, _, err := h.m.calls.Output(t.Context(), alice, short.ID, client.OutputQuery{Stream: "x"}); codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("unknown stream: %v", err)
	}
	if err := os.Remove(filepath.Join(h.dir, "output", s.ID, long.ID)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.m.calls.Output(t.Context(), alice, long.ID, client.OutputQuery{}); codeOfErr(err) != client.CodeNotFound {
		t.Errorf("file that is gone: %v", err)
	}
}

// beforeMark is what a cut output shows, without the mark that is its last line.
func beforeMark(t *testing.T, output string) string {
	t.Helper()
	output = strings.TrimSuffix(output, "\n")
	at := strings.LastIndex(output, "\n[")
	if at < 0 || !strings.HasSuffix(output, "]") {
		t.Fatalf("no mark of a cut at the end: …%q", output[max(len(output)-40, 0):])
	}
	return output[:at+1]
}
