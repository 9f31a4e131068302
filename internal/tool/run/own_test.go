package run

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/search"
)

// Files of any size and kind are searched in bounded memory, and what is not
// searched to its end is told.
func TestOwnEngineBounds(t *testing.T) {
	env := ownEnv(t)
	w := env.Worktree
	tree(t, w, map[string]string{"text": "needle\n", "sub/": ""})
	must(t, syscall.Mkfifo(filepath.Join(w, "fifo"), 0o644))
	must(t, os.Symlink("/etc", filepath.Join(w, "link")))
	must(t, os.Symlink("text", filepath.Join(w, "sub/link")))
	for name, size := range map[string]int64{"sparse": 1 << 40, "sub/sparse": 1 << 40} {
		must(t, os.WriteFile(filepath.Join(w, name), []byte("needle\n"), 0o644))
		must(t, os.Truncate(filepath.Join(w, name), size))
	}
	long, err := os.Create(filepath.Join(w, "long"))
	must(t, err)
	chunk := []byte(strings.Repeat("x", 1<<20))
	for range 40 {
		_, err = long.Write(chunk)
		must(t, err)
	}
	_, err = long.WriteString("needle\n")
	must(t, err)
	must(t, long.Close())
	peak := peakMemory(t)
	for _, mode := range []string{"content", "files", "count"} {
		out, res := answer(t, env, Grep{}, map[string]any{"pattern": "needle", "output_mode": mode})
		if res.Metadata["matches"] != 1 || !strings.Contains(out, "searched to their end: 1.)") || !strings.Contains(out, "W/text") {
			t.Errorf("%s: got %v\n%s", mode, res.Metadata, out)
		}
	}
	out, _ := answer(t, env, Grep{}, map[string]any{"pattern": "needle\nx|x\nneedle", "multiline": true})
	if !strings.Contains(out, "searched to their end: 1.)") {
		t.Errorf("multiline: got %s", out)
	}
	if got := peak(); got > 200<<20 {
		t.Errorf("%d MiB were used", got>>20)
	}
	res, err := call(t, env, Grep{}, map[string]any{"pattern": "x\ny", "multiline": true, "path": "long"})
	if err != nil || !res.IsError || !strings.Contains(res.Output, "Leave multiline out") {
		t.Errorf("a file that is too large for multiline: got %+v, %v", res, err)
	}
	// A file without end is left when the time is up.
	ctx, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, err = Grep{}.Run(timed{ctx}, env, json.RawMessage(`{"pattern":"absent","path":"sparse"}`), nil)
	}()
	readingFrom(t, filepath.Join(w, "sparse"), 1<<20)
	end()
	<-done
	if err != nil || res.Metadata["partial"] != true || !strings.Contains(res.Output, "the time for the call was up") {
		t.Errorf("1 TiB: got %+v, %v", res, err)
	}
}

// timed is a context whose time is up when it is cancelled.
type timed struct{ context.Context }

func (c timed) Err() error {
	if c.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// peakMemory looks at the heap until the function that it gives is called.
func peakMemory(t *testing.T) func() uint64 {
	t.Helper()
	runtime.GC() // what other tests have left does not count
	done, result := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-done:
				result <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() uint64 {
		close(done)
		return <-result
	}
}

// What cannot be read is said, and nothing is read that the tool user may not.
func TestOwnEngineDenied(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can work as somebody else")
	}
	env := ownEnv(t)
	w := env.Worktree
	top, err := filepath.EvalSymlinks(os.TempDir())
	must(t, err)
	for dir := w; dir != top && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	tree(t, w, map[string]string{"a": "x\n", "closed": "x\n", "dir/b": "x\n"})
	must(t, os.Chmod(filepath.Join(w, "closed"), 0o600))
	must(t, os.Chmod(filepath.Join(w, "dir"), 0o700))
	r, err := root.New(root.Config{Dir: "/", UID: 1000, GID: 1000})
	must(t, err)
	t.Cleanup(r.Close)
	env.Root = r
	for _, tool := range []Tool{Grep{}, Glob{}} {
		out, res := answer(t, env, tool, map[string]any{"pattern": "[ax]", "output_mode": "files"})
		if res.Metadata["unreadable"] != true || !strings.Contains(out, "W/a\n") || strings.Contains(out, "dir/b") {
			t.Errorf("%s: got %v\n%s", tool.Name(), res.Metadata, out)
		}
	}
	if res, err := call(t, env, Grep{}, map[string]any{"pattern": "x", "path": "closed"}); err != nil || !res.IsError || !strings.Contains(res.Output, "could not be read") {
		t.Errorf("one file: got %+v, %v", res, err)
	}
	if res, err := call(t, env, Grep{}, map[string]any{"pattern": "x", "path": "dir"}); err == nil && !res.IsError {
		t.Errorf("a closed directory: got %+v, %v", res, err)
	}
}

// A directory with very many entries, and ones in ones, come to an end.
func TestOwnEngineLargeTrees(t *testing.T) {
	env := ownEnv(t)
	w := env.Worktree
	const many = 30_000
	must(t, os.Mkdir(filepath.Join(w, "many"), 0o755))
	for i := range many {
		must(t, os.WriteFile(fmt.Sprintf("%s/many/%06d", w, i), nil, 0o644))
	}
	deep := filepath.Join(w, "deep")
	for len(deep) < 3900 {
		deep += "/d"
	}
	must(t, os.MkdirAll(deep, 0o755))
	must(t, os.WriteFile(deep+"/end", []byte("x"), 0o644))
	_, res := answer(t, env, Glob{}, map[string]any{"pattern": "*"})
	if res.Metadata["total"] != many+1 || res.Metadata["more"] != true {
		t.Errorf("got %v", res.Metadata)
	}
	if _, res = answer(t, env, Glob{}, map[string]any{"pattern": "end"}); res.Metadata["total"] != 1 {
		t.Errorf("got %v", res.Metadata)
	}
}

// Ignore files cannot take memory or time without end.
func TestOwnEngineIgnoreBounds(t *testing.T) {
	env := ownEnv(t)
	w := env.Worktree
	tree(t, w, map[string]string{"a/.gitignore": strings.Repeat("x", 2<<20), "a/f": "", "b/f": ""})
	out, res := answer(t, env, Glob{}, map[string]any{"pattern": "f"})
	if res.Metadata["partial"] != true || !strings.Contains(out, "is larger than 1024 KiB") {
		t.Errorf("a large file: got %s", out)
	}
	must(t, os.RemoveAll(filepath.Join(w, "a")))
	rules := strings.Repeat("*a?b*\n", 100_000)
	for i := range 4 {
		tree(t, w, map[string]string{fmt.Sprintf("c%d/.gitignore", i): rules})
	}
	out, res = answer(t, env, Glob{}, map[string]any{"pattern": "f"})
	if res.Metadata["partial"] != true || !strings.Contains(out, "ignore files take more than 32 MiB") {
		t.Errorf("many rules: got %s", out)
	}
}

// A walk that is aborted ends the call as such.
func TestOwnEngineAborted(t *testing.T) {
	env := ownEnv(t)
	tree(t, env.Worktree, map[string]string{"a": "x\n"})
	for _, tool := range []Tool{Grep{}, Glob{}} {
		ctx, cancel := context.WithCancel(t.Context())
		env.Exec = func(context.Context, Command) (*Exit, error) {
			_, err := noRipgrep(ctx, Command{})
			go cancel()
			<-ctx.Done()
			return nil, err
		}
		prep, err := tool.Prepare(t.Context(), env, json.RawMessage(`{"pattern":"x"}`))
		must(t, err)
		_, err = tool.Run(ctx, env, json.RawMessage(`{"pattern":"x"}`), prep)
		wantCode(t, err, CodeAborted, "")
	}
}

// A file that fails while its lines hold the others up does not hold itself up.
func TestOwnEngineReadError(t *testing.T) {
	env := ownEnv(t)
	name := filepath.Join(env.Worktree, "f")
	must(t, os.WriteFile(name, []byte(strings.Repeat("needle\n", 1<<17)), 0o644))
	target, err := env.Root.Resolve(t.Context(), name)
	must(t, err)
	query, err := search.Compile("needle", search.Options{})
	must(t, err)
	o := &ownGrep{
		search: newGrepSearch(grepInput{Limit: 1 << 20, OutputMode: grepContent}, target),
		root:   env.Root, query: query,
	}
	o.mu.Lock() // as another file does: f waits with the lines of its beginning
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.file(t.Context(), 0, target.Path, true)
	}()
	fd := readingFrom(t, target.Path, ownFileBytes)
	dir, err := syscall.Open(env.Worktree, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	must(t, err)
	must(t, syscall.Dup3(dir, fd, syscall.O_CLOEXEC)) // which cannot be read
	must(t, syscall.Close(dir))
	o.mu.Unlock()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	if !o.unreadable || len(o.search.files) != 1 {
		t.Errorf("unreadable: %t, %d files", o.unreadable, len(o.search.files))
	}
}

// readingFrom waits until this process has read the first part of a file, and gives
// the descriptor that it reads it by.
func readingFrom(t *testing.T, path string, part int) int {
	t.Helper()
	for range 3000 {
		time.Sleep(10 * time.Millisecond)
		fds, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		for _, e := range fds {
			if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || to != path {
				continue
			}
			info, err := os.ReadFile("/proc/self/fdinfo/" + e.Name())
			at := 0
			if _, scanned := fmt.Sscanf(string(info), "pos: %d", &at); err != nil || scanned != nil || at < part {
				continue
			}
			fd, err := strconv.Atoi(e.Name())
			must(t, err)
			return fd
		}
	}
	t.Fatal("nobody reads it")
	return -1
}

// What waits for its age to be looked at is little, however long its path is.
func TestAgesBatches(t *testing.T) {
	for _, length := range []int{20, 4000} {
		a := &ages{ready: make(chan []string, 1000)}
		for range 1000 {
			a.ask(strings.Repeat("x", length))
		}
		a.wait()
		total := 0
		for batch := range a.ready {
			if total += len(batch); len(batch) > globBatch || (len(batch)-1)*length > globBatchBytes {
				t.Errorf("%d names of %d bytes in a batch", len(batch), length)
			}
		}
		if total != 1000 {
			t.Errorf("%d names came", total)
		}
	}
}
