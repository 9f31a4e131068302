package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run/treetar"
)

// readResult is result.json, strictly.
func readResult(t *testing.T, dir string) jobResult {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var r jobResult
	if err := dec.Decode(&r); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return r
}

// TestBoundedLog: a log keeps both ends of any writes, and counts the rest.
func TestBoundedLog(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for _, most := range []int{0, 100, maxLogPart, 2 * maxLogPart, 2*maxLogPart + 1, 5 * maxLogPart, 7*maxLogPart + 12345} {
		var l boundedLog
		all := make([]byte, most)
		for i := range all {
			all[i] = byte(i*7 + i>>9)
		}
		for rest := all; len(rest) > 0; {
			n := 1 + rnd.IntN(min(len(rest), 1+rnd.IntN(3*maxLogPart)))
			if got, err := l.Write(rest[:n]); got != n || err != nil {
				t.Fatalf("Write gave %d, %v", got, err)
			}
			rest = rest[n:]
		}
		want := all
		if left := most - 2*maxLogPart; left > 0 {
			want = fmt.Appendf(slices.Clone(all[:maxLogPart]), "\n[toolctl: %s left out]\n", plain.Count(left, "byte", "bytes"))
			want = append(want, all[most-maxLogPart:]...)
		}
		var got bytes.Buffer
		if err := l.writeTo(&got); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%d bytes: got %d, want %d; %v", most, got.Len(), len(want), err)
		}
	}
}

// checkJUnit fails where a document is not what the common schema says.
func checkJUnit(t *testing.T, doc []byte) (cases int) {
	t.Helper()
	cases, err := testrig.CheckJUnit(doc)
	if err != nil {
		t.Fatalf("%v in %q", err, doc)
	}
	return cases
}

// TestJUnitHostile: no bytes of an output, an input or an error make another document.
func TestJUnitHostile(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	pieces := []string{"]]>", "<!--", "</testcase>", "&#0;", "&", "<", `"`, "\x00", "\x1b[2J", "\xff", "\xed\xa0\x80", "\ufffe", "\uffff", "\u202e", "\r\n", "é", "\U0010ffff"}
	text := func() string {
		var b strings.Builder
		for range rnd.IntN(20) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
			b.WriteByte(byte(rnd.Uint32()))
		}
		return b.String()
	}
	for range 300 {
		p := &ciReport{names: make(map[string]int)}
		for range 5 {
			input, _ := json.Marshal(map[string]string{"command": text()})
			c := bashDone(text(), exited(rnd.IntN(2)))
			c.Input, c.Tool = input, "t"+text()
			if rnd.IntN(3) == 0 {
				c.Status, c.Error = client.CallError, &client.Error{Code: client.Code("c" + text()), Message: text()}
			}
			p.addCall(&c)
		}
		var b bytes.Buffer
		if err := writeJUnit(&b, p.cases, time.Now()); err != nil {
			t.Fatal(err)
		}
		if n := checkJUnit(t, b.Bytes()); n != 5 {
			t.Fatalf("%d cases", n)
		}
	}
}

// TestJUnitNames: each case has names of its own, as a reader of the document sees them.
func TestJUnitNames(t *testing.T) {
	p := &ciReport{names: make(map[string]int)}
	for _, tool := range []string{"t\x00", "t\xff", "t\uffff", "t\x00"} {
		for _, command := range []string{"x", "x (2)", "x", "x (2)"} {
			c := bashDone("", exited(0))
			c.Tool, c.Input = tool, json.RawMessage(`"`+command+`"`)
			p.addCall(&c)
		}
	}
	var b bytes.Buffer
	if err := writeJUnit(&b, p.cases, time.Now()); err != nil || checkJUnit(t, b.Bytes()) != 16 {
		t.Errorf("%v in %s", err, b.Bytes())
	}
}

// TestReportBounds: a million calls and a million files end somewhere, and are counted.
func TestReportBounds(t *testing.T) {
	p := &ciReport{names: make(map[string]int)}
	for range maxReportCalls + 5 {
		c := bashDone(strings.Repeat("é", maxCaseOutput), exited(1))
		c.Usage.CPUMillis, c.IsError = 2, true
		c.Input = json.RawMessage(`{"command":"` + strings.Repeat("x", 10_000) + `"}`)
		p.addCall(&c)
	}
	if r := &p.result; r.Calls.Count != maxReportCalls+5 || r.Calls.LeftOut != 5 || len(r.Calls.Items) != maxReportCalls || r.Bill.CPUMillis != 2*(maxReportCalls+5) {
		t.Errorf("%+v", r.Bill)
	}
	if k := p.cases[0]; len(k.Failure.Text) > maxCaseOutput+10 || width(k.Name) > maxInputShort {
		t.Errorf("a case of %d bytes, named by %d columns", len(k.Failure.Text), width(k.Name))
	}
	a := &artifacts{patterns: []string{"**"}, matched: make([]bool, 1), count: new(resultArtifacts)}
	for i := range maxArtifacts + 7 {
		if left := a.leaves(fmt.Sprintf("/%d", i), &treetar.Entry{Size: 1}); left != (i >= maxArtifacts) {
			t.Fatalf("file %d: left out %v", i, left)
		}
	}
	b := &artifacts{patterns: []string{"**"}, matched: make([]bool, 1), count: new(resultArtifacts)}
	for i, size := range []int64{maxArtifactBytes, 1, 0} {
		if left := b.leaves("/x", &treetar.Entry{Size: size}); left != (i == 1) {
			t.Errorf("%d bytes: left out %v", size, left)
		}
	}
	if a.count.LeftOut != 7 || b.count.LeftOut != 1 {
		t.Errorf("left out %d and %d", a.count.LeftOut, b.count.LeftOut)
	}
}

func TestArtifactTops(t *testing.T) {
	for _, c := range []struct{ patterns, want string }{
		{"reports/**", "reports"},
		{"**/*.xml", "."},
		{"a/b", "a"},
		{"a/b/*.x a/*.y b/c/d", "a b/c"},
		{"a/*.x *.y", "."},
		{"ab/x a/y", "a ab"},
		{"{a,b}/x", "."},
		{"a/[b]c/x", "a"},
	} {
		if got := strings.Join(tops(strings.Fields(c.patterns)), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.patterns, got, c.want)
		}
	}
}

// reported runs toolctl with --report against a fake with these routes beside its own.
func reported(t *testing.T, h map[string]http.HandlerFunc, args ...string) (result, string, *fakeDaemon) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "report")
	d := startFake(t, h)
	return d.ctl(append([]string{"run", "--report", dir}, args...)...), dir, d
}

// TestReportCalls: every call has its line and its case, the command's as it has ended.
func TestReportCalls(t *testing.T) {
	h := runHandlers(stream(bashDone("", exited(3)), client.Output{Stream: "stdout", Text: "out"}))
	other := bashDone("x", exited(0))
	other.ID = "call_other"
	stale := client.Call{ID: fakeCall, Tool: "bash", Status: client.CallRunning}
	h["GET /v1/sessions/{id}/calls"] = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("after") == "" {
			answer(w, 200, client.List[client.Call]{Items: []client.Call{other}, Next: "n"})
			return
		}
		answer(w, 200, client.List[client.Call]{Items: []client.Call{stale}})
	}
	r, dir, _ := reported(t, h, "--", "x")
	r.want(t, 3, "out", "")
	got := readResult(t, dir)
	if len(got.Calls.Items) != 2 || got.Calls.Items[1].Status != client.CallCompleted || *got.Calls.Items[1].ExitCode != 3 || got.ExitCode != 3 || got.Reason != "exit" ||
		got.Session.ID != fakeSession || got.Missing != nil {
		t.Errorf("%+v", got)
	}
	doc, err := os.ReadFile(filepath.Join(dir, "junit.xml"))
	if err != nil || checkJUnit(t, doc) != 2 {
		t.Errorf("%v in %s", err, doc)
	}
}

// TestReportNotWhole: what is missing is named, and toolctl does not exit as if all were there.
func TestReportNotWhole(t *testing.T) {
	h := runHandlers(stream(bashDone("", exited(0)), client.Output{Text: "all the same"}))
	h["GET /v1/sessions/{id}/calls"] = problemWith(500, client.CodeInternal)
	h["GET /v1/sessions/{id}/files"] = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("no tar")) }
	r, dir, d := reported(t, h, "--artifact", "out/**", "--", "x")
	r.want(t, exitRunFailed, "all the same", "is not whole: calls: ")
	got := readResult(t, dir)
	if len(got.Missing) != 2 || got.ExitCode != exitRunFailed || len(got.Calls.Items) != 1 {
		t.Errorf("%+v", got)
	}
	if len(d.asked("DELETE", "/"+fakeSession)) != 1 {
		t.Error("the session was not ended")
	}
}

// TestReportWithoutRoom: where a file cannot be written there is no result.json.
func TestReportWithoutRoom(t *testing.T) {
	h := runHandlers(nil)
	dir := filepath.Join(t.TempDir(), "report")
	h["POST /v1/sessions/{id}/calls"] = func(w http.ResponseWriter, r *http.Request) {
		if err := os.Mkdir(filepath.Join(dir, "junit.xml"), 0o755); err != nil {
			t.Error(err)
		}
		stream(bashDone("", exited(7)))(w, r)
	}
	h["GET /v1/sessions/{id}/calls"] = answerWith(client.List[client.Call]{})
	startFake(t, h).ctl("run", "--report", dir, "--", "x").want(t, exitRunFailed, "", "--report: write junit.xml")
	if _, err := os.Stat(filepath.Join(dir, "result.json")); err == nil {
		t.Error("there is a result.json")
	}
}
