package root

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"
)

// onOwnMounts runs a role of this binary in a mount namespace of its own, so that nothing is
// left of its mounts however it ends.
func onOwnMounts(t *testing.T, role string) {
	t.Helper()
	needRoot(t)
	cmd := runHelper(t, role, "DIR="+t.TempDir())
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "operation not permitted") {
		testrig.Skipf(t, "root", "this root may not mount: %s", out)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

// TestTransactionFull fills a small file system before each step of transactions: all of one
// is there afterwards or nothing.
func TestTransactionFull(t *testing.T) { onOwnMounts(t, "full") }

// TestTransactionReadOnly makes a file system read-only before each step: nothing is lost.
func TestTransactionReadOnly(t *testing.T) { onOwnMounts(t, "readonly") }

// ownTmpfs mounts a small file system, with directories for a tree, a journal and what fills it.
func ownTmpfs() (string, error) {
	dir := os.Getenv("DIR")
	return dir, errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("none", dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "size=128k,nr_inodes=48"),
		os.Mkdir(dir+"/tree", 0o755), os.Mkdir(dir+"/journal", 0o700), os.Mkdir(dir+"/hog", 0o700),
	)
}

// mixed are changes of each kind, of files that are there before as far as they must be.
func mixed(dir string) ([]FileChange, error) {
	var errs []error
	for _, name := range []string{"/a", "/b", "/d/c", "/e"} {
		errs = append(errs, os.MkdirAll(filepath.Dir(dir+name), 0o755), os.WriteFile(dir+name, []byte("old "+name), 0o640))
	}
	more := bytes.Repeat([]byte("new "), 3000)
	return []FileChange{
		{Path: "/a", Content: more},
		{Path: "/new/deep/f", Content: more},
		{Path: "/b", Remove: true},
		{Path: "/d/c", Content: []byte("old /d/c"), Exec: new(bool)}, // the content stays
		{Path: "/g", Content: more, Like: "/b"},
		{Path: "/e", Content: []byte("new")},
	}, errors.Join(errs...)
}

// fillFile takes what is left of a file system: its room, or its names.
func fillFile(hog string, names bool) {
	for i := 0; names && i < 64; i++ {
		_ = os.WriteFile(fmt.Sprintf("%s/%d", hog, i), nil, 0o600)
	}
	for _, piece := range []int{64 << 10, 4 << 10, 512} {
		for i := 0; !names && i < 64; i++ {
			f, err := os.OpenFile(hog+"/room", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				break
			}
			_, err = f.Write(make([]byte, piece))
			_ = f.Close()
			if err != nil {
				break
			}
		}
	}
}

func emptied(dir string) error {
	names, err := os.ReadDir(dir)
	for _, n := range names {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, n.Name())))
	}
	return err
}

// changeOnFull makes the mixed changes with a full file system from each step on.
func changeOnFull() error {
	dir, err := ownTmpfs()
	if err != nil {
		return err
	}
	failed, made := 0, 0
	for variant := range 8 {
		named, names, journal := variant&1 > 0, variant&2 > 0, variant&4 > 0
		for at, more := 0, true; more; at++ {
			var did bool
			if did, more, err = changeFullAt(dir, at, named, names, journal); err != nil {
				return fmt.Errorf("full before step %d, named %v, without names %v, journal there %v: %w", at, named, names, journal, err)
			}
			if did {
				made++
			} else {
				failed++
			}
		}
	}
	fmt.Println(made, "were made,", failed, "not")
	if made == 0 || failed == 0 {
		return errUnexpected
	}
	return nil
}

// changeFullAt is one time of them. more is false where there are no so many steps.
func changeFullAt(dir string, at int, named, names, journal bool) (did, more bool, err error) {
	tree, log := dir+"/tree", dir+"/journal"
	if err := errors.Join(emptied(tree), emptied(log), emptied(dir+"/hog")); err != nil {
		return false, false, err
	}
	changes, err := mixed(tree)
	if err != nil {
		return false, false, err
	}
	cfg := Config{Dir: tree, UID: -1}
	if journal {
		cfg.Journal = log
	}
	r, err := New(cfg)
	if err != nil {
		return false, false, err
	}
	defer r.Close()
	r.named = named
	was, err := treeNow(tree)
	if err != nil {
		return false, false, err
	}
	steps := 0
	r.step = func() {
		if steps++; steps == at {
			fillFile(dir+"/hog", names)
		}
	}
	if at == 0 {
		fillFile(dir+"/hog", names)
	}
	tx, err := r.BeginAll(context.Background(), pathsOf(changes))
	if err != nil {
		return false, false, err
	}
	_, cause := tx.Commit(context.Background(), changes, CommitOptions{Durable: at%2 == 0})
	tx.Close()
	if cause != nil && (CodeOf(cause) != Failed || !errors.Is(cause, unix.ENOSPC)) {
		return false, false, fmt.Errorf("its end: %w", errors.Join(errUnexpected, cause))
	}
	want := was
	if cause == nil {
		want = treeAfter(was, changes)
	}
	got, err := treeNow(tree)
	left, err2 := os.ReadDir(log)
	if err := errors.Join(err, err2); err != nil || !maps.Equal(got, want) || len(left) > 0 {
		return false, false, fmt.Errorf("%w\ngot  %.200q\nwant %.200q\nin the journal %v", errors.Join(errUnexpected, cause, err), got, want, left)
	}
	return cause == nil, steps >= at, nil
}

// changeOnReadOnly makes transactions on a mount that can be written from none of their steps on.
// The kernel refuses that while a file is open for writing, so that most steps only remove.
func changeOnReadOnly() error {
	dir, err := ownTmpfs()
	if err != nil {
		return err
	}
	tree := dir + "/tree"
	if err := unix.Mount(tree, tree, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	ends := make(map[string]int)
	for _, removes := range []bool{true, false} {
		for at, more := 0, true; more; at++ {
			var end string
			if end, more, err = changeReadOnlyAt(tree, dir+"/journal", at, removes); err != nil {
				return fmt.Errorf("read-only before step %d, only removes %v: %w", at, removes, err)
			}
			ends[end]++
		}
	}
	fmt.Println(ends)
	if ends["nothing"] == 0 || ends["stuck"] == 0 || ends["all"] == 0 {
		return errUnexpected
	}
	return recoverOnReadOnly(tree, dir+"/journal")
}

// recoverOnReadOnly proves that a recovery which can write nothing can be made again.
func recoverOnReadOnly(tree, log string) error {
	if err := errors.Join(emptied(tree), emptied(log)); err != nil {
		return err
	}
	token := strings.Repeat("0a", 16)
	e := entry{Path: "/a", New: journalPrefix + token + "-0.new", Old: journalPrefix + token + "-0.old", Was: sumOf([]byte("old")), Is: sumOf([]byte("new"))}
	text, err := json.Marshal(record{Steps: []entry{e}})
	if err != nil {
		return err
	}
	r, err := New(Config{Dir: tree, UID: -1})
	if err != nil {
		return err
	}
	defer r.Close()
	if err := errors.Join(
		os.WriteFile(log+"/"+token, text, 0o600), os.WriteFile(tree+"/a", []byte("new"), 0o600), os.WriteFile(tree+"/"+e.Old, []byte("old"), 0o600),
		unix.Mount("", tree, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
	); err != nil {
		return err
	}
	if all, err := r.Recover(context.Background(), log, RecoverOptions{}); !errors.Is(err, unix.EROFS) || len(all) > 0 {
		return fmt.Errorf("recovered %v, %w", all, errors.Join(errUnexpected, err))
	}
	if err := unix.Mount("", tree, "", unix.MS_BIND|unix.MS_REMOUNT, ""); err != nil {
		return err
	}
	all, err := r.Recover(context.Background(), log, RecoverOptions{})
	got, err2 := treeNow(tree)
	if err := errors.Join(err, err2); err != nil || len(all) != 1 || !maps.Equal(got, map[string]string{"/a": "-rw-------old"}) {
		return fmt.Errorf("recovered %v, %w\ngot  %q", all, errors.Join(errUnexpected, err), got)
	}
	return nil
}

// changeReadOnlyAt is one time of them, and says how it ended.
func changeReadOnlyAt(tree, log string, at int, removes bool) (end string, more bool, err error) {
	if err := errors.Join(emptied(tree), emptied(log)); err != nil {
		return "", false, err
	}
	changes, err := mixed(tree)
	if err != nil {
		return "", false, err
	}
	if removes {
		changes = []FileChange{{Path: "/a", Remove: true}, {Path: "/b", Remove: true}, {Path: "/d/c", Remove: true}}
	}
	r, err := New(Config{Dir: tree, UID: -1, Journal: log})
	if err != nil {
		return "", false, err
	}
	defer r.Close()
	was, err := treeNow(tree)
	if err != nil {
		return "", false, err
	}
	steps, shut := 0, false
	r.step = func() {
		if steps++; steps >= at && !shut {
			shut = unix.Mount("", tree, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "") == nil
		}
	}
	if at == 0 {
		r.step()
	}
	tx, cause := r.BeginAll(context.Background(), pathsOf(changes))
	if cause == nil {
		_, cause = tx.Commit(context.Background(), changes, CommitOptions{})
		tx.Close()
	}
	if err := unix.Mount("", tree, "", unix.MS_BIND|unix.MS_REMOUNT, ""); err != nil {
		return "", false, err
	}
	if cause != nil && (CodeOf(cause) != Failed || !errors.Is(cause, unix.EROFS)) {
		return "", false, fmt.Errorf("its end: %w", errors.Join(errUnexpected, cause))
	}
	got, err := treeNow(tree)
	if err != nil {
		return "", false, err
	}
	switch {
	case cause == nil:
		return "all", steps >= at, onlyKept(got, treeAfter(was, changes), nil)
	case maps.Equal(got, was):
		return "nothing", steps >= at, nil
	}
	return "stuck", steps >= at, onlyKept(got, was, cause)
}

// onlyKept proves that a tree is as wanted, but for files that the error names, which have what
// could not be put back.
func onlyKept(got, want map[string]string, cause error) error {
	for path, text := range want {
		if got[path] == text {
			continue
		}
		found := ""
		for other, has := range got {
			if has == text && strings.HasPrefix(filepath.Base(other), journalPrefix) && cause != nil && strings.Contains(cause.Error(), filepath.Base(other)) {
				found = other
			}
		}
		if found == "" {
			return fmt.Errorf("%s is lost, %w\ngot  %.300q", path, errors.Join(errUnexpected, cause), got)
		}
	}
	return nil
}
