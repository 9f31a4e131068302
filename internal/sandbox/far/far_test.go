package far

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/state"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func trees(t *testing.T) *Trees {
	t.Helper()
	needs.OpenAt2(t)
	all := NewTrees(filepath.Join(t.TempDir(), "changes"), slog.New(slog.DiscardHandler))
	t.Cleanup(all.Close)
	return all
}

// sent is a worktree with the file "file" that was copied.
func sent(t *testing.T, all *Trees, mode client.WorktreeMode) (at state.Dir, worktree string) {
	t.Helper()
	at, worktree = state.Dir{Path: filepath.Join(t.TempDir(), "ses_1")}, t.TempDir()
	must(t, os.Mkdir(at.Path, 0o700))
	must(t, os.WriteFile(filepath.Join(worktree, "file"), []byte("old"), 0o600))
	dir, err := os.Open(worktree)
	must(t, err)
	defer dir.Close()
	w := sandbox.Worktree{Source: dir, Mode: mode, Target: "/workspace", UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	skipped, err := all.Send(t.Context(), at, &w, func(archive io.Reader) error {
		_, err := io.Copy(io.Discard, archive)
		return err
	})
	if err != nil || skipped != 0 {
		t.Fatalf("%d skipped, %v", skipped, err)
	}
	return at, worktree
}

// changed gives the worktree as a sandbox has it in the end.
func changed(target string, save func(io.Reader) error) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := errors.Join(
		w.WriteHeader(&tar.Header{Name: "workspace/", Typeflag: tar.TypeDir, Mode: 0o755}),
		w.WriteHeader(&tar.Header{Name: "workspace/file", Typeflag: tar.TypeReg, Mode: 0o600, Size: 3}))
	_, writeErr := io.WriteString(w, "new")
	if err := errors.Join(err, writeErr, w.Close()); err != nil {
		return err
	}
	if target != "/workspace" {
		return fmt.Errorf("asked for %s", target)
	}
	return save(&b)
}

func has(t *testing.T, worktree, want string) {
	t.Helper()
	if got, err := os.ReadFile(filepath.Join(worktree, "file")); err != nil || string(got) != want {
		t.Errorf("the file has %q, %v, want %q", got, err, want)
	}
}

// What was changed comes back once, by the daemon that sent it or by another one.
func TestReturn(t *testing.T) {
	for name, another := range map[string]bool{"same daemon": false, "another": true} {
		t.Run(name, func(t *testing.T) {
			all := trees(t)
			at, worktree := sent(t, all, client.WorktreeBind)
			if another {
				all = trees(t)
			}
			if !all.Waits(at) {
				t.Error("nothing is to come back")
			}
			if note, err := all.Return(t.Context(), at, changed); note != "" || err != nil {
				t.Errorf("note %q, %v", note, err)
			}
			has(t, worktree, "new")
			again := func(string, func(io.Reader) error) error { t.Error("it is asked for again"); return nil }
			if note, err := all.Return(t.Context(), at, again); note != "" || err != nil || all.Waits(at) {
				t.Errorf("again: note %q, %v", note, err)
			}
			if left, err := os.ReadDir(all.changes); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// A read-only worktree has nothing to bring back, and an empty one is not sent.
func TestNothingToReturn(t *testing.T) {
	all := trees(t)
	if at, _ := sent(t, all, client.WorktreeRO); all.Waits(at) {
		t.Error("a read-only one waits")
	}
	at := state.Dir{Path: t.TempDir()}
	refuse := func(io.Reader) error { return errors.New("an empty one is sent") }
	if _, err := all.Send(t.Context(), at, &sandbox.Worktree{Mode: client.WorktreeEmpty}, refuse); err != nil || all.Waits(at) {
		t.Error(err)
	}
}

// What a daemon before this one has begun to copy back is not written over.
func TestReturnAgain(t *testing.T) {
	all := trees(t)
	at, worktree := sent(t, all, client.WorktreeBind)
	archive, link := filepath.Join(all.changes, at.ID()+".tar"), filepath.Join(t.TempDir(), "content")
	must(t, errors.Join(os.Mkdir(all.changes, 0o700), os.WriteFile(archive, []byte("old"), 0o600), os.Link(archive, link)))
	if note, err := all.Return(t.Context(), at, changed); note != "" || err != nil {
		t.Errorf("note %q, %v", note, err)
	}
	has(t, worktree, "new")
	if got, err := os.ReadFile(link); err != nil || string(got) != "old" {
		t.Errorf("the journal's archive is %q, %v", got, err)
	}
}

// Why nothing comes back decides whether it is tried again.
func TestReturnFails(t *testing.T) {
	all := trees(t)
	at, worktree := sent(t, all, client.WorktreeBind)
	silent := errors.New("it does not answer")
	if note, err := all.Return(t.Context(), at, func(string, func(io.Reader) error) error { return silent }); note != "" || !errors.Is(err, silent) || !all.Waits(at) {
		t.Errorf("silent: note %q, %v", note, err)
	}
	gone := func(string, func(io.Reader) error) error { return sandbox.ErrGone }
	if note, err := all.Return(t.Context(), at, gone); err != nil || !strings.Contains(note, "lost") {
		t.Errorf("gone: note %q, %v", note, err)
	}
	must(t, os.WriteFile(filepath.Join(worktree, "file"), []byte("ours"), 0o600))
	note, err := all.Return(t.Context(), at, changed)
	if err != nil || !strings.Contains(note, "1 in conflict") || !strings.Contains(note, "ses_1.tar") || all.Waits(at) {
		t.Errorf("conflict: note %q, %v", note, err)
	}
	has(t, worktree, "ours")
}

// What a daemon before this one has sent, this one brings back, and the other way round.
func TestReturnOfEarlier(t *testing.T) {
	all := trees(t)
	at, worktree := sent(t, all, client.WorktreeBind)
	var st unix.Stat_t
	must(t, unix.Stat(worktree, &st))
	earlier := fmt.Sprintf(`{"Path":%q,"Dev":%d,"Ino":%d,"Owner":{"UID":%d,"GID":%d},"Target":"/workspace","Back":true}`,
		worktree, st.Dev, st.Ino, os.Getuid(), os.Getgid())
	written, err := os.ReadFile(at.File("worktree.json"))
	must(t, err)
	var got, want map[string]any
	must(t, errors.Join(json.Unmarshal(written, &got), json.Unmarshal([]byte(earlier), &want)))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("written %s, and was %s", written, earlier)
	}
	must(t, os.WriteFile(at.File("worktree.json"), []byte(earlier), 0o600))
	if note, err := trees(t).Return(t.Context(), at, changed); note != "" || err != nil {
		t.Errorf("note %q, %v", note, err)
	}
	has(t, worktree, "new")
}

// A connection carries both ways, ends when the other does, and none begins after Close.
func TestTunnel(t *testing.T) {
	var tunnel Tunnel
	far, engine := net.Pipe()
	near, err := tunnel.Carry(far, func(to io.Writer) error { _, err := io.Copy(to, far); return err })
	must(t, err)
	defer near.Close()
	buf := make([]byte, 4)
	for _, way := range [][2]net.Conn{{near, engine}, {engine, near}} {
		_, err := io.WriteString(way[0], "ping")
		must(t, err)
		if _, err := io.ReadFull(way[1], buf); err != nil || string(buf) != "ping" {
			t.Errorf("got %q, %v", buf, err)
		}
	}
	must(t, engine.Close())
	if n, err := near.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("read %d, %v after its end", n, err)
	}
	tunnel.Close()
	other, engine := net.Pipe()
	defer engine.Close()
	if _, err := tunnel.Carry(other, func(io.Writer) error { return nil }); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := other.Write(buf); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("what it would have carried by is open: %v", err)
	}
}

// TestNoRoom: a worktree for which this host has no room waits in its sandbox, and comes back when
// there is some.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	all := trees(t)
	at, worktree := sent(t, all, client.WorktreeBind)
	full := errors.New("the disk is nearly full")
	all.Room = func(int64) error { return full }
	if _, err := all.Return(t.Context(), at, changed); !errors.Is(err, full) || !all.Waits(at) {
		t.Errorf("without room: %v, waits %v", err, all.Waits(at))
	}
	if left, err := filepath.Glob(all.changes + "/*"); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	has(t, worktree, "old")
	all.Room = func(int64) error { return nil }
	if note, err := all.Return(t.Context(), at, changed); err != nil || note != "" {
		t.Errorf("with room: %q, %v", note, err)
	}
	has(t, worktree, "new")
}
