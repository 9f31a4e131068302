package search

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/tool/run/root"
)

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What a short pattern stands for is refused before it is made.
func TestLargePatterns(t *testing.T) {
	for name, p := range map[string]string{
		"characters of a property":    strings.Repeat(`\w`, 8000),
		"properties in either case":   strings.Repeat(`(?i:\pL)`, 2000),
		"one class":                   "[" + strings.Repeat(`\w`, 8000) + "]",
		"classes in a class":          "[" + strings.Repeat(`[\w]`, 8000) + "]",
		"operators of a class":        "[" + strings.Repeat(`\w--a&&`, 4000) + "a]",
		"repetitions beside another":  strings.Repeat("[ab]{1000}", 3200),
		"repetitions of a repetition": strings.Repeat("([ab]{500}){2}", 2200),
	} {
		var err error
		n := allocated(func() { _, err = Compile(p, Options{}) })
		if !errors.Is(err, errSize) || n > 160<<20 {
			t.Errorf("%s: %v, %d MiB were allocated", name, err, n>>20)
		}
	}
	if _, err := Compile(strings.Repeat(`\w`, 200)+strings.Repeat("[ab]{900}", 100), Options{}); err != nil {
		t.Error(err)
	}
}

// States of a large pattern are large.
func TestLargeStates(t *testing.T) {
	q, err := Compile("a"+strings.Repeat("[ab]{1000}", 20)+"c", Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := newDFA(q.prog, nil)
	line := make([]byte, 5000)
	for i := range line {
		line[i] = "ab"[rand.IntN(2)]
	}
	for at := 0; at < len(line); at += 500 {
		d.match(t.Context(), line[:at])
		held := 0
		for key, s := range d.states {
			held += len(key) + 4*cap(s.pcs)
		}
		if held > maxStateBytes+1<<20 {
			t.Fatalf("%d states hold %d bytes", len(d.states), held)
		}
	}
}

// A text in either case is compared at each place where it may be.
func TestLongFoldedText(t *testing.T) {
	q, err := Compile(strings.Repeat("z", 30000), Options{IgnoreCase: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range q.need.needs {
		if len(n.text) > maxFolded || n.whole {
			t.Errorf("a text of %d bytes, whole: %t", len(n.text), n.whole)
		}
	}
}

// Rules take many times the memory of their text.
func TestRulesAreCounted(t *testing.T) {
	for _, line := range []string{strings.Repeat("?", 4000), strings.Repeat("*a", 2000), strings.Repeat("[a]", 1300), "{" + strings.Repeat("a,", 2000) + "b}", "a"} {
		text := strings.Repeat(line+"\n", 1<<18/(len(line)+1))
		spent := 0
		n := 0
		rs := parseRules(text, func(bytes int) bool { spent += bytes; n++; return true })
		held := 0
		for i := range rs {
			g := rs[i].glob
			held += 64 + len(g.text) + 24*cap(g.prog)
		}
		if spent < held || len(rs) != n {
			t.Errorf("%.10q…: %d bytes are counted, %d are held", line, spent, held)
		}
		if cut := parseRules(text, func(bytes int) bool { n--; return n > 0 }); len(cut) != len(rs)-1 {
			t.Errorf("%.10q…: %d of %d rules, one too many", line, len(cut), len(rs))
		}
	}
}

// What waits to be searched is bounded by what it takes, however long its paths are.
func TestPendingIsBounded(t *testing.T) {
	w := &walk{}
	w.wake.L = &w.mu
	long := "/" + strings.Repeat("a", 4000)
	held := 0
	for !w.ended() {
		w.add(pendingDir{path: long})
		if held = len(w.pending) * len(long); held > maxPending {
			t.Fatalf("%d bytes wait", held)
		}
	}
	if held < maxPending/2 || !strings.Contains(w.report.Partial, "wait to be searched") {
		t.Errorf("%d bytes wait: %q", held, w.report.Partial)
	}
	w.over, w.report = false, Report{}
	if _, ok := w.take(true); !ok {
		t.Fatal("there is none")
	}
	if w.add(pendingDir{path: long}); w.ended() {
		t.Errorf("what is taken does not make room: %q", w.report.Partial)
	}
}

// However many rules there are, and whatever they are, the end of a call ends them.
func TestRulesEnd(t *testing.T) {
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, "%d%s\n", i, strings.Repeat("*a", 2000))
		fmt.Fprintf(&b, "%sb\n", strings.Repeat("*a", 2000))
	}
	rs := parseRules(b.String(), unbounded)
	name := strings.Repeat("a", 255)
	path := strings.Repeat(name+"/", 15) + name
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	began := time.Now()
	rs.judge(&globber{ctx: ctx}, path, false)
	// Each rule alone takes longer than this.
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

// hostRoot works on the host's files.
func hostRoot(t *testing.T) *root.Root {
	t.Helper()
	needs.OpenAt2(t)
	r, err := root.New(root.Config{Dir: "/", UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// tempTree is a directory with one file, by its canonical path.
func tempTree(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// All searches have one memory. What is left when there is none is still right.
func TestScratch(t *testing.T) {
	r, dir := hostRoot(t), tempTree(t)
	hog := r.NewScratch()
	total := int64(0)
	for size := int64(1 << 20); size > 0; {
		if !hog.Take(size) {
			size /= 2
			continue
		}
		total += size
	}
	q, err := Compile("[ab]*a[ab]{5}ä?c$", Options{})
	if err != nil {
		t.Fatal(err)
	}
	scarce := r.NewScratch()
	poor, rich := newDFA(q.prog, scarce), newDFA(q.prog, nil)
	for range 2000 {
		line := make([]byte, rand.IntN(30))
		for i := range line {
			line[i] = "abc"[rand.IntN(3)]
		}
		text := strings.ReplaceAll(string(line), "cc", "äc")
		if poor.match(t.Context(), []byte(text)) != rich.match(t.Context(), []byte(text)) {
			t.Fatalf("%q: the answer depends on the memory", text)
		}
	}
	if len(poor.states)+len(poor.wide) > 0 {
		t.Errorf("%d states are remembered without memory", len(poor.states))
	}
	visit := func(int, string) bool { return true }
	if report, err := Walk(t.Context(), r, dir, visit); err != nil || report.Partial != noScratch {
		t.Errorf("walk: %+v, %v", report, err)
	}
	if err := q.Hold(scarce); err == nil {
		t.Error("a pattern is held without memory")
	}
	hog.Release()
	if report, err := Walk(t.Context(), r, dir, visit); err != nil || report != (Report{}) {
		t.Errorf("walk with memory: %+v, %v", report, err)
	}
	s := NewSearcher(q, Spec{}, r)
	s.dfa.match(t.Context(), []byte("abcä"))
	if hog.Take(total) {
		t.Error("states take nothing")
	}
	s.Close()
	if !hog.Take(total) {
		t.Error("not all was given back")
	}
}

// A panic in a worker is the caller's, who can recover it.
func TestVisitPanics(t *testing.T) {
	r, dir := hostRoot(t), tempTree(t)
	defer func() {
		if p := recover(); p != "visit" {
			t.Errorf("recovered %v", p)
		}
	}()
	_, err := Walk(t.Context(), r, dir, func(int, string) bool { panic("visit") })
	t.Errorf("the walk went on: %v", err)
}
