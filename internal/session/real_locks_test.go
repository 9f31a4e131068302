package session

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
)

// TestRealLocksAtTheEnd: however a session ends, and a private daemon with it, a git that runs is asked to end first and takes its
// lock out of the host's repository; the lock of one that does not is named.
func TestRealLocksAtTheEnd(t *testing.T) {
	t.Parallel()
	h := newRealHouse(t)
	m, stop, err := h.open(slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelWarn})))
	testrig.Must(t, err)
	defer func() { testrig.Must(t, stop()) }()
	dir := realTree(t, m, "[permission]\n\"*\" = \"allow\"\n", nil)
	type held struct{ session, call, lock string }
	// begin has a git in the background hold a lock, which it takes away, if it does at all, when it is asked to end.
	begin := func(name, asked string) held {
		tree := filepath.Join(dir, name)
		testrig.Must(t, os.MkdirAll(filepath.Join(tree, ".git"), 0o777))
		for _, d := range []string{dir, tree, filepath.Join(tree, ".git")} {
			testrig.Must(t, os.Chmod(d, 0o777))
		}
		s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: tree, Mode: client.WorktreeBind}})
		if err != nil {
			t.Fatal(err)
		}
		r := bashCall(`cp "$(command -v bash)" git; (exec ./git -c 'trap "` + asked + `" TERM; : > .git/index.lock; while :; do sleep 0.01; done') & sleep 3000`)
		r.WaitMillis = new(int64)
		c, err := m.calls.Call(t.Context(), mounter, s.ID, r, call.Options{})
		if err != nil {
			t.Fatal(err)
		}
		lock := filepath.Join(tree, ".git/index.lock")
		testrig.Eventually(t, "git has its lock", func() bool {
			_, err := os.Lstat(lock)
			return err == nil
		})
		return held{s.ID, c.ID, lock}
	}
	const gives, keeps = "rm .git/index.lock; exit", ""
	said := func(x held) string {
		c, err := m.calls.GetCall(t.Context(), mounter, x.call)
		if err != nil {
			t.Fatal(err)
		}
		return c.Output
	}
	check := func(x held, left bool) {
		t.Helper()
		if _, err := os.Lstat(x.lock); (err == nil) != left {
			t.Errorf("%s: %v", x.lock, err)
		}
		if out := said(x); strings.Contains(out, "git was killed and left /workspace/.git/index.lock") != left {
			t.Errorf("%s: the call says %q", x.lock, out)
		}
	}

	asked := begin("request", gives)
	_, err = m.End(t.Context(), mounter, asked.session, client.EndOptions{})
	testrig.Must(t, err)
	check(asked, false)
	stubborn := begin("stubborn", keeps)
	_, err = m.End(t.Context(), mounter, stubborn.session, client.EndOptions{})
	testrig.Must(t, err)
	check(stubborn, true)
	all := []held{begin("all", gives), begin("of", gives)}
	testrig.Must(t, m.EndAll(context.Background()))
	for _, x := range all {
		check(x, false)
	}
}
