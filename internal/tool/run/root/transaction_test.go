package root

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// randomTransaction makes a tree in dir and says what changes of it.
func randomTransaction(dir string, seed uint64) ([]FileChange, error) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	var all []FileChange
	names := []string{"/a", "/b", "/d/c", "/d/e", "/new/deep/f", "/new/g", "/h"}
	rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for i, name := range names[:2+rnd.IntN(len(names)-1)] {
		c := FileChange{Path: name, Content: fmt.Appendf(nil, "new %d of %d\n", i, seed)}
		if !strings.HasPrefix(name, "/new/") && rnd.IntN(4) > 0 {
			if err := os.MkdirAll(filepath.Dir(dir+name), 0o755); err != nil {
				return nil, err
			}
			if err := os.WriteFile(dir+name, fmt.Appendf(nil, "old %d\n", i), 0o640); err != nil {
				return nil, err
			}
			switch rnd.IntN(3) {
			case 0:
				c = FileChange{Path: name, Remove: true}
			case 1:
				c.Exec = new(bool)
				if *c.Exec = rnd.IntN(2) == 0; *c.Exec && rnd.IntN(2) == 0 {
					c.Content = fmt.Appendf(nil, "old %d\n", i)
				}
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// snapshot is every file with its mode and content, and every directory.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	all, err := treeNow(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// treeNow is snapshot for those who have no test.
func treeNow(dir string) (map[string]string, error) {
	all := make(map[string]string)
	return all, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if d.IsDir() {
			all[path[len(dir):]] = "a directory"
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		all[path[len(dir):]] = fmt.Sprint(info.Mode(), string(text))
		return err
	})
}

// treeAfter is what a tree becomes.
func treeAfter(was map[string]string, changes []FileChange) map[string]string {
	is := maps.Clone(was)
	for _, c := range changes {
		if c.Remove {
			delete(is, c.Path)
			continue
		}
		mode := fs.FileMode(0o644)
		if _, there := was[c.Path]; there || c.Like != "" {
			mode = 0o640
		}
		if c.Exec != nil && *c.Exec {
			mode |= mode & 0o444 >> 2
		}
		is[c.Path] = fmt.Sprint(mode, string(c.Content))
		for dir := filepath.Dir(c.Path); dir != "/"; dir = filepath.Dir(dir) {
			is[dir] = "a directory"
		}
	}
	return is
}

func pathsOf(changes []FileChange) []string {
	var paths []string
	for _, c := range changes {
		paths = append(paths, c.Path)
	}
	return paths
}

func commitAll(t *testing.T, r *Root, changes []FileChange) ([]Committed, error) {
	t.Helper()
	tx, err := r.BeginAll(t.Context(), pathsOf(changes))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	return tx.Commit(t.Context(), changes, CommitOptions{})
}

func newJournal(t *testing.T, r *Root) string {
	t.Helper()
	dir := t.TempDir()
	j, err := openJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	r.journal = j
	return dir
}

func TestTransaction(t *testing.T) {
	for seed := range uint64(60) {
		for _, named := range []bool{false, true} { // as where files cannot change places at once
			r, dir := newRoot(t)
			r.named = named
			log := ""
			if seed%3 > 0 {
				log = newJournal(t, r)
			}
			changes, err := randomTransaction(dir, seed)
			if err != nil {
				t.Fatal(err)
			}
			want := treeAfter(snapshot(t, dir), changes)
			done, err := commitAll(t, r, changes)
			if got := snapshot(t, dir); err != nil || len(done) != len(changes) || !maps.Equal(got, want) {
				t.Fatalf("seed %d: %v\ngot  %v\nwant %v", seed, err, got, want)
			}
			if left, err := os.ReadDir(log); log != "" && (err != nil || len(left) > 0) {
				t.Fatalf("seed %d: in the journal: %v, %v", seed, left, err)
			}
		}
	}
}

// TestTransactionUndone fails a transaction at one of its steps by what a tree can do to it.
func TestTransactionUndone(t *testing.T) {
	for seed := range uint64(40) {
		r, dir := newRoot(t)
		r.named = seed%2 == 0
		newJournal(t, r)
		changes, err := randomTransaction(dir, seed)
		if err != nil {
			t.Fatal(err)
		}
		// The last one finds a file in its place that was not there.
		changes = append(changes, FileChange{Path: "/z/late", Content: []byte("x")})
		put(t, dir+"/other", "")
		want := snapshot(t, dir)
		tx, err := r.BeginAll(t.Context(), pathsOf(changes))
		if err != nil {
			t.Fatal(err)
		}
		placing := false
		r.step = func() {
			if _, err := os.Stat(dir + "/z"); err == nil && !placing {
				placing = true
				put(t, dir+"/z/late", "theirs")
			}
		}
		_, err = tx.Commit(t.Context(), changes, CommitOptions{})
		tx.Close()
		want["/z"], want["/z/late"] = "a directory", fmt.Sprint(fs.FileMode(0o644), "theirs")
		if got := snapshot(t, dir); CodeOf(err) != Stale || !maps.Equal(got, want) {
			t.Fatalf("seed %d: %v\ngot  %v\nwant %v", seed, err, got, want)
		}
	}
}

func TestTransactionStale(t *testing.T) {
	for name, disturb := range map[string]func(dir string) error{
		"changed":  func(dir string) error { return os.WriteFile(dir+"/b", []byte("theirs"), 0o644) },
		"removed":  func(dir string) error { return os.Remove(dir + "/b") },
		"replaced": func(dir string) error { return os.Rename(dir+"/other", dir+"/b") },
		"a link":   func(dir string) error { return errors.Join(os.Remove(dir+"/b"), os.Symlink("other", dir+"/b")) },
	} {
		t.Run(name, func(t *testing.T) {
			r, dir := newRoot(t)
			put(t, dir+"/a", "a")
			put(t, dir+"/b", "b")
			put(t, dir+"/other", "theirs")
			tx, err := r.BeginAll(t.Context(), []string{"/b", "/a"})
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Close()
			if old, err := tx.ReadOld(t.Context(), "/b", 10); string(old) != "b" || err != nil || !tx.Info("/b").Exists {
				t.Fatalf("%q, %v", old, err)
			}
			if err := disturb(dir); err != nil {
				t.Fatal(err)
			}
			_, err = tx.Commit(t.Context(), []FileChange{{Path: "/a", Content: []byte("new")}, {Path: "/b", Remove: true}}, CommitOptions{Durable: true})
			if got, _ := os.ReadFile(dir + "/a"); CodeOf(err) != Stale || string(got) != "a" {
				t.Errorf("%v; a has %q", err, got)
			}
			if left, _ := filepath.Glob(dir + "/.toold-*"); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// What is moved has the mode of what it was.
func TestTransactionLike(t *testing.T) {
	r, dir := newRoot(t)
	put(t, dir+"/a", "a")
	if err := os.Chmod(dir+"/a", 0o751); err != nil {
		t.Fatal(err)
	}
	_, err := commitAll(t, r, []FileChange{{Path: "/a", Remove: true}, {Path: "/d/b", Content: []byte("a"), Like: "/a"}})
	info, err2 := os.Stat(dir + "/d/b")
	if err != nil || err2 != nil || info.Mode() != 0o751 {
		t.Errorf("%v, %v, %v", info, err, err2)
	}
}

// changeUntilKilled makes a transaction, and kills itself before its step number STEP.
func changeUntilKilled() error {
	seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil {
		return err
	}
	stop, err := strconv.Atoi(os.Getenv("STEP"))
	if err != nil {
		return err
	}
	dir := os.Getenv("DIR")
	r, err := New(Config{Dir: dir, UID: -1, Journal: os.Getenv("JOURNAL")})
	if err != nil {
		return err
	}
	r.named = seed%2 == 0
	changes, err := randomTransaction(dir, seed)
	if err != nil {
		return err
	}
	r.step = func() {
		if stop--; stop < 0 {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	tx, err := r.BeginAll(context.Background(), pathsOf(changes))
	if err != nil {
		return err
	}
	_, err = tx.Commit(context.Background(), changes, CommitOptions{})
	return err
}

// killedTransactions is how often TestTransactionKilled kills; ROOT_TEST_KILLS says another
// number.
const killedTransactions = 20

// A transaction whose process is killed before any of its steps is finished or undone by
// who comes next: all of it is there or nothing. So it is where that one is killed too.
func TestTransactionKilled(t *testing.T) {
	kills := killedTransactions
	if n, err := strconv.Atoi(os.Getenv("ROOT_TEST_KILLS")); err == nil {
		kills = n
	}
	finished, undone := 0, 0
	for seed := uint64(1); kills > 0; seed++ {
		for step := int(seed * 5 % 23); kills > 0; step += 23 {
			r, dir := newRoot(t)
			log := t.TempDir()
			changes, err := randomTransaction(dir, seed) // made again by the helper
			if err != nil {
				t.Fatal(err)
			}
			was := snapshot(t, dir)
			cmd := runHelper(t, "transaction", "DIR="+dir, "JOURNAL="+log, fmt.Sprint("SEED=", seed), fmt.Sprint("STEP=", step))
			out, err := cmd.CombinedOutput()
			if err == nil {
				break // it has fewer steps
			}
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
				t.Fatalf("%v: %s", err, out)
			}
			kills--
			if step%3 == 1 {
				recoverInPart(t, r, log)
				r.step = nil
			}
			all, err := r.Recover(t.Context(), log, RecoverOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got, want := snapshot(t, dir), was
			if len(all) > 0 && all[0].Finished {
				want = treeAfter(was, changes)
				finished++
			} else {
				undone++
			}
			if !maps.Equal(got, want) {
				t.Fatalf("seed %d, step %d: %+v\ngot  %v\nwant %v", seed, step, all, got, want)
			}
			if left, err := os.ReadDir(log); err != nil || slices.ContainsFunc(left, func(e fs.DirEntry) bool { return tokenPattern().MatchString(strings.TrimSuffix(e.Name(), doneSuffix)) }) {
				t.Fatalf("in the journal: %v, %v", left, err)
			}
		}
	}
	if finished == 0 || undone == 0 {
		t.Errorf("%d finished, %d undone: not both are tested", finished, undone)
	}
	t.Logf("%d finished, %d undone", finished, undone)
}

// recoverInPart ends a recovery after its first step.
func recoverInPart(t *testing.T, r *Root, log string) {
	t.Helper()
	steps := 0
	r.step = func() {
		if steps++; steps > 1 {
			panic("killed")
		}
	}
	defer func() { _ = recover() }()
	_, _ = r.Recover(t.Context(), log, RecoverOptions{})
}

// A journal comes out of a sandbox. Nothing of it is touched that is not below the
// directory, that is to be left, or that has no name of a transaction's.
func TestRecoverHostile(t *testing.T) {
	token := strings.Repeat("0a", 16)
	name := func(kind string) string { return journalPrefix + token + "-0." + kind }
	for _, tt := range []struct{ name, record, path string }{
		{"another name", `{"steps":[{"path":"/w/f","new":"../x","old":"y","was":"a"}]}`, "f"},
		{"up", `{"steps":[{"path":"/w/../f","new":"` + name("new") + `","old":"` + name("old") + `","is":"` + sumOf([]byte("theirs")) + `"}]}`, "f"},
		{"elsewhere", `{"steps":[{"path":"/x/f","new":"` + name("new") + `","old":"` + name("old") + `","is":"` + sumOf([]byte("theirs")) + `"}]}`, "f"},
		{"to be left", `{"steps":[{"path":"/w/.git/config","new":"` + name("new") + `","old":"` + name("old") + `","is":"` + sumOf([]byte("theirs")) + `"}]}`, ".git/config"},
		{"through a link", `{"steps":[{"path":"/w/link/f","new":"` + name("new") + `","old":"` + name("old") + `","is":"` + sumOf([]byte("theirs")) + `"}]}`, "f"},
		{"no record", `{"steps":`, "f"},
		{"a device", "", "f"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, dir := newRoot(t)
			put(t, dir+"/"+tt.path, "theirs")
			link(t, ".", dir+"/link")
			log := t.TempDir()
			put(t, log+"/"+token, tt.record)
			if tt.record == "" {
				if err := errors.Join(os.Remove(log+"/"+token), unix.Mkfifo(log+"/"+token, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			all, err := r.Recover(t.Context(), log, RecoverOptions{Below: "/w", Leave: func(p string) bool { return strings.HasPrefix(p, "/.git/") }})
			if got, readErr := os.ReadFile(dir + "/" + tt.path); string(got) != "theirs" {
				t.Errorf("%q, %v (%v, %v)", got, readErr, all, err)
			}
		})
	}
}

// FuzzRecord: no record makes the reader panic, and all that it takes keeps its bounds.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"steps":[{"path":"/a","new":".toold-tx-00000000000000000000000000000000-0.new","old":".toold-tx-00000000000000000000000000000000-0.old","is":"x"}],"dirs":["/b"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRecord("t", text)
		if err != nil {
			return
		}
		for _, e := range r.Steps {
			if !plainPath(e.Path) || strings.Contains(e.New+e.Old, "/") {
				t.Errorf("took %+v", e)
			}
		}
	})
}
