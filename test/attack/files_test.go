package attack

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// F1: links of every kind that lead out of the tree. What they lead to is the
// sandbox's own root, never the host's.
func TestF1Links(t *testing.T) {
	s := newScene(t, "")
	secret := filepath.Join(s.dir, "host-secret")
	must(t, os.WriteFile(secret, []byte("host secret"), 0o644))
	for name, target := range map[string]string{
		"file": secret, "dir": s.dir, "chain": "file", "relative": "../../../../../../../../../../" + secret,
		"dangling": "/nowhere/at/all", "loop": "loop", "proc": "/proc/1/root" + secret,
	} {
		must(t, os.Symlink(target, filepath.Join(s.tree, name)))
	}
	for _, path := range []string{"file", "dir/host-secret", "chain", "relative", "dangling", "loop", "proc", "/workspace/../../../.." + secret} {
		for tool, in := range map[string]map[string]any{
			"read": {"file_path": path},
			"edit": {"file_path": path, "old_string": "host secret", "new_string": "changed"},
			"grep": {"pattern": "secret", "path": path},
		} {
			c := call(t, s.a, s.attacker.ID, tool, in)
			if strings.Contains(c.Output, "host secret") {
				t.Errorf("%s %s: %q", tool, path, c.Output)
			}
		}
	}
	for _, path := range []string{"file", "dir/new", "dangling"} {
		call(t, s.a, s.attacker.ID, "write", map[string]any{"file_path": path, "content": "overwritten"})
	}
	if read(secret) != "host secret" {
		t.Error("the host's file changed")
	}
	if _, err := os.Stat(filepath.Join(s.dir, "new")); err == nil {
		t.Error("a file appeared outside the tree")
	}
	// Control: a link inside the tree is followed.
	must(t, os.WriteFile(filepath.Join(s.tree, "real"), []byte("inside"), 0o644))
	must(t, os.Symlink("/workspace/real", filepath.Join(s.tree, "good")))
	if c := call(t, s.a, s.attacker.ID, "read", map[string]any{"file_path": "good"}); !strings.Contains(c.Output, "inside") {
		t.Errorf("control: %q %v", c.Output, c.Error)
	}
}

// F2: a file, its parent and its grandparent are swapped with links under the
// tools' hands. The marker outside is the sandbox's own and must not be reached
// by a path inside the tree either.
func TestF2Swaps(t *testing.T) {
	s := newScene(t, "")
	outside := filepath.Join(s.dir, "outside")
	must(t, os.MkdirAll(filepath.Join(outside, "b"), 0o777))
	must(t, os.WriteFile(filepath.Join(outside, "b", "f"), []byte("OUTSIDE"), 0o666))
	must(t, os.MkdirAll(filepath.Join(s.tree, "a", "b"), 0o777))
	must(t, os.WriteFile(filepath.Join(s.tree, "a", "b", "f"), []byte("inside"), 0o666))
	must(t, os.Symlink(outside, filepath.Join(s.tree, "la")))
	must(t, os.Symlink(filepath.Join(outside, "b"), filepath.Join(s.tree, "a", "lb")))
	must(t, os.Symlink(filepath.Join(outside, "b", "f"), filepath.Join(s.tree, "a", "b", "lf")))
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; !stop.Load(); i++ {
			renameExchange(filepath.Join(s.tree, "a"), filepath.Join(s.tree, "la"))
			renameExchange(filepath.Join(s.tree, "a", "b"), filepath.Join(s.tree, "a", "lb"))
			renameExchange(filepath.Join(s.tree, "a", "b", "f"), filepath.Join(s.tree, "a", "b", "lf"))
		}
	}()
	rounds, good := 3000, 0
	if testing.Short() {
		rounds = 200
	}
	// The path leads to the file for a short time in each turn: on for as long as it
	// takes to meet that once.
	for i := 0; i < rounds || good == 0 && i < 100*rounds; i++ {
		var c *client.Call
		var err error
		switch i % 3 {
		case 0:
			c, err = tryCall(s.a, s.attacker.ID, "read", map[string]any{"file_path": "a/b/f"})
		case 1:
			c, err = tryCall(s.a, s.attacker.ID, "write", map[string]any{"file_path": "a/b/f", "content": "inside"})
		default:
			c, err = tryCall(s.a, s.attacker.ID, "edit", map[string]any{"file_path": "a/b/f", "old_string": "OUTSIDE", "new_string": "STOLEN"})
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(c.Output, "OUTSIDE") && i%3 == 0 {
			t.Fatalf("read reached the outside: %q", c.Output)
		}
		if c.Status == client.CallCompleted && !c.IsError {
			good++
		}
	}
	stop.Store(true)
	<-done
	if got := read(filepath.Join(outside, "b", "f")); got != "OUTSIDE" {
		t.Errorf("the outside was written: %q", got)
	}
	if good == 0 {
		t.Error("control: nothing succeeded, the race was never on")
	}
	t.Logf("%d calls hit the file", good)
}

// F3: paths that are none, and ones that lead around by what the kernel gives.
func TestF3Paths(t *testing.T) {
	s := newScene(t, "")
	secret := filepath.Join(s.dir, "host-secret")
	must(t, os.WriteFile(secret, []byte("host secret"), 0o644))
	none := []string{"", ".", "..", "/", "//", "/workspace/", "/workspace/..", "x\x00y", strings.Repeat("a/", 3000), strings.Repeat("n", 256), "/dev/fd/0", "/dev/stdin", "/proc/self/fd/0"}
	around := []string{
		"/proc/self/root" + secret, "/proc/1/root" + secret, "/proc/self/root/../../.." + secret, "/proc/self/cwd/../../../.." + secret,
		"/proc/thread-self/root" + secret, "../../../../.." + secret, "/workspace/nowhere/../../../.." + secret,
	}
	for i, path := range append(none, around...) {
		for tool, in := range map[string]map[string]any{
			"read":  {"file_path": path},
			"edit":  {"file_path": path, "old_string": "host secret", "new_string": "changed"},
			"write": {"file_path": path, "content": "changed"},
		} {
			c, err := tryCall(s.a, s.attacker.ID, tool, in)
			if err != nil {
				continue // refused before it became a call
			}
			if strings.Contains(c.Output, "host secret") {
				t.Errorf("%s %.80q: %.200q", tool, path, c.Output)
			}
			if i < len(none) && tool != "read" && c.Status == client.CallCompleted && !c.IsError {
				t.Errorf("%s %.80q: %.200q", tool, path, c.Output)
			}
		}
	}
	if read(secret) != "host secret" {
		t.Error("the host's file changed")
	}
	must(t, os.WriteFile(filepath.Join(s.tree, "plain"), []byte("inside"), 0o644))
	if c := call(t, s.a, s.attacker.ID, "read", map[string]any{"file_path": "/workspace//./plain"}); !strings.Contains(c.Output, "inside") {
		t.Errorf("control: %q %v", c.Output, c.Error)
	}
}

// F5: what is no regular file is refused at once.
func TestF5SpecialFiles(t *testing.T) {
	s := newScene(t, "")
	must(t, unix.Mkfifo(filepath.Join(s.tree, "fifo"), 0o666))
	must(t, os.Chmod(filepath.Join(s.tree, "fifo"), 0o666))
	ln, err := net.Listen("unix", filepath.Join(s.tree, "sock"))
	must(t, err)
	defer ln.Close()
	must(t, os.Chmod(filepath.Join(s.tree, "sock"), 0o777))
	for _, path := range []string{"fifo", "sock", "/dev/zero", "/dev/tty", "/proc/kmsg", "/dev/ptmx"} {
		for tool, in := range map[string]map[string]any{
			"read":  {"file_path": path},
			"edit":  {"file_path": path, "old_string": "a", "new_string": "b"},
			"write": {"file_path": path, "content": "x"},
			"grep":  {"pattern": "x", "path": path},
			"glob":  {"pattern": "*", "path": path},
		} {
			start := time.Now()
			c := call(t, s.a, s.attacker.ID, tool, in)
			if took := time.Since(start); took > patience {
				t.Errorf("%s %s took %s", tool, path, took)
			}
			if c.Status == client.CallCompleted && !c.IsError {
				t.Errorf("%s %s: %q", tool, path, c.Output)
			}
		}
	}
}

// F6: files and directories of absurd size.
func TestF6Sizes(t *testing.T) {
	s := newScene(t, "")
	f, err := os.Create(filepath.Join(s.tree, "sparse"))
	must(t, err)
	must(t, f.Truncate(1<<40))
	must(t, f.Close())
	line, err := os.Create(filepath.Join(s.tree, "oneline"))
	must(t, err)
	for range 100 {
		line.Write([]byte(strings.Repeat("x", 1<<20)))
	}
	must(t, line.Close())
	many := filepath.Join(s.tree, "many")
	must(t, os.Mkdir(many, 0o755))
	n := 100000
	if testing.Short() {
		n = 5000
	}
	for i := range n {
		fd, err := unix.Open(fmt.Sprintf("%s/f%06d", many, i), unix.O_CREAT|unix.O_WRONLY, 0o644)
		must(t, err)
		unix.Close(fd)
	}
	deep := s.tree
	for range 100 {
		deep += "/" + strings.Repeat("d", 30)
	}
	must(t, os.MkdirAll(deep, 0o755))
	pid, _ := agentPID(s.attacker.ID)
	before := rss(pid)
	for _, c := range []struct {
		tool string
		in   map[string]any
	}{
		{"read", map[string]any{"file_path": "sparse"}},
		{"read", map[string]any{"file_path": "oneline"}},
		{"read", map[string]any{"file_path": "oneline", "offset": 5}},
		{"read", map[string]any{"file_path": "many"}},
		{"read", map[string]any{"file_path": "/proc/self/mem"}},
		{"list", map[string]any{"path": "many"}},
		{"list", map[string]any{}},
		{"glob", map[string]any{"pattern": "**/*"}},
		{"grep", map[string]any{"pattern": "x", "path": "oneline"}},
		{"grep", map[string]any{"pattern": "nothing", "path": "many"}},
		{"edit", map[string]any{"file_path": "sparse", "old_string": "a", "new_string": "b"}},
		{"edit", map[string]any{"file_path": "oneline", "old_string": "y", "new_string": "b"}},
	} {
		start := time.Now()
		got := call(t, s.a, s.attacker.ID, c.tool, c.in)
		if len(got.Output) > 80000 {
			t.Errorf("%s %v: %d bytes of output", c.tool, c.in, len(got.Output))
		}
		if took := time.Since(start); took > patience {
			t.Errorf("%s %v took %s", c.tool, c.in, took)
		}
	}
	if grown := rss(pid) - before; grown > 200<<20 {
		t.Errorf("the agent grew by %d MiB", grown>>20)
	}
}

// F8: names that are no names.
func TestF8Names(t *testing.T) {
	s := newScene(t, "")
	for _, n := range []string{"new\nline", "esc\x1b[31mred", "bad\xff\xfeutf8", "-rf", "--pre=touch pwned", "tab\tname", "quote\"'`$(touch pwned)"} {
		must(t, os.WriteFile(filepath.Join(s.tree, n), []byte("needle\n"), 0o644))
	}
	s.bash(t, "printf -- '--pre=/workspace/evil\\n' > /home/tool/.ripgreprc")
	for _, c := range []struct {
		tool string
		in   map[string]any
	}{
		{"list", map[string]any{}},
		{"glob", map[string]any{"pattern": "*"}},
		{"grep", map[string]any{"pattern": "needle"}},
		{"grep", map[string]any{"pattern": "--pre=touch pwned"}},
		{"grep", map[string]any{"pattern": "-e", "path": "-rf"}},
		{"read", map[string]any{"file_path": "."}},
		{"read", map[string]any{"file_path": "esc\x1b[31mred"}},
	} {
		got := call(t, s.a, s.attacker.ID, c.tool, c.in)
		if strings.Contains(got.Output+got.Title, "\x1b") || !utf8.ValidString(got.Output+got.Title) {
			t.Errorf("%s %v: raw control characters in %q", c.tool, c.in, got.Output)
		}
	}
	if _, err := os.Stat(filepath.Join(s.tree, "pwned")); err == nil {
		t.Error("a name was run")
	}
	if c := call(t, s.a, s.attacker.ID, "grep", map[string]any{"pattern": "needle", "output_mode": "count"}); c.IsError {
		t.Errorf("control: %q", c.Output)
	}
}

// F10: an agent that is killed in the middle of writing leaves the file old or new.
func TestF10KilledWriter(t *testing.T) {
	n := 15
	if testing.Short() {
		n = 3
	}
	s := newScene(t, "")
	before, after := strings.Repeat("old\n", 200000), strings.Repeat("new\n", 200000)
	for i := range n {
		tree := s.rig.tree(t)
		file := filepath.Join(tree, "f")
		must(t, os.WriteFile(file, []byte(before), 0o640))
		x := s.session(t, s.a, client.SessionCreate{Worktree: client.Worktree{Source: tree}})
		pid, ok := agentPID(x.ID)
		if !ok {
			t.Fatal("no agent")
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			tryCall(s.a, x.ID, "write", map[string]any{"file_path": "f", "content": after})
		}()
		time.Sleep(time.Duration(i) * 1500 * time.Microsecond)
		unix.Kill(pid, unix.SIGKILL)
		<-done
		got := read(file)
		if got != before && got != after {
			t.Errorf("round %d: the file is neither old nor new (%d bytes)", i, len(got))
		}
		if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o640 {
			t.Errorf("round %d: mode %v %v", i, st.Mode(), err)
		}
		s.a.EndSession(t.Context(), x.ID, client.EndOptions{Force: true})
	}
}
