package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

const cpLong = `Copy a file, or with -r a directory, out of a session or into one. "-" is standard
output or input, for a directory a tar.

A path in a session is absolute or relative to its worktree. Write ./ before a
local path that has a colon.

A file from a session replaces the local file in one step. A local link is
replaced, never followed, and only regular files are overwritten. A file that goes
into a session keeps its permission bits, without setuid and setgid.

-r copies files, directories and links; devices, sockets and FIFOs are skipped. A
directory arrives under its own name in a local directory that exists, and in a session
below a path that ends with a slash; else under the name that is given. DIR/. stands for
what is in DIR. Links stay links, nothing is written through one, hard links become
files, times and owners are not copied. Files that rules hide or protect are left out,
and said; then, and where an entry could not be copied, the exit status is 1.`

func newCpCommand(a *app) *cobra.Command {
	var recursive bool
	cp := &cobra.Command{
		Use:   "cp [-r] SESSION:PATH FILE | cp [-r] FILE SESSION:PATH",
		Short: "Copy a file or a directory out of a session or into one",
		Long:  cpLong,
		Example: `  toolctl cp review:report.txt .
  toolctl cp patch.diff review:/tmp/patch.diff
  toolctl cp review:build.log - | tail
  toolctl cp -r review:reports .
  toolctl cp -r fixtures/. review:test/fixtures
  git archive HEAD | toolctl cp -r - review:`,
		ValidArgsFunction: func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			out, _ := always(a.sessions)(c, args, typed)
			for i, s := range out {
				name, about, _ := strings.Cut(s, "\t")
				out[i] = cobra.CompletionWithDesc(name+":", about)
			}
			return out, cobra.ShellCompDirectiveNoSpace
		},
		RunE: func(c *cobra.Command, args []string) error {
			return copyFile(c.Context(), a, args[0], args[1], recursive)
		},
	}
	cp.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy a directory with all that is in it")
	return cp
}

func copyFile(ctx context.Context, a *app, from, to string, recursive bool) error {
	fromSession, fromPath, out := splitRemote(from)
	toSession, toPath, in := splitRemote(to)
	if in == out {
		return usagef("exactly one side must be SESSION:PATH, as in \"toolctl cp review:report.txt .\"")
	}
	ref, err := sessionRef(fromSession + toSession)
	if err != nil {
		return err
	}
	c := a.client()
	if from == "-" { // which is read once
		s, err := a.session(ctx, c, ref)
		if err != nil {
			return err
		}
		ref = s.ID
	}
	progress := a.progress("copying")
	err = a.withSession(ctx, c, ref, func(ref string) error {
		defer noticeApprovals(ctx, a, c, ref)()
		tree := &treeCopy{a: a, c: c, session: ref, moved: func(n int64) { progress.set("copying: " + bytesShort(n)) }}
		switch {
		case recursive && in:
			return tree.in(ctx, from, toPath)
		case recursive:
			return tree.out(ctx, fromPath, to)
		case in:
			return copyIn(ctx, a, c, ref, from, toPath)
		}
		return copyOut(ctx, a, c, ref, fromPath, to)
	})
	progress.stop()
	if err == nil && a.errTTY && to != "-" {
		a.say("%s is copied to %s", line(from), line(to))
	}
	return err
}

// noticeEvery is how often noticeApprovals looks.
const noticeEvery = time.Second

// noticeApprovals tells, until stop is called, that a transfer waits for
// somebody to allow it: its answer is the file and has no events. Who may not
// list approvals is told nothing.
func noticeApprovals(ctx context.Context, a *app, c *client.Client, session string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	begin, told := time.Now(), map[string]bool{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(noticeEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			pending, err := pendingApprovals(ctx, c, client.ApprovalQuery{Session: session})
			if err != nil {
				return
			}
			for i := range pending {
				p := &pending[i]
				if strings.HasPrefix(p.Tool, "file_") && p.Created.After(begin.Add(-noticeEvery)) && !told[p.ID] {
					told[p.ID] = true
					sayAsked(a, p, "")
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

// splitRemote reads SESSION:PATH; what begins like a path is a local file.
func splitRemote(arg string) (session, file string, ok bool) {
	session, file, ok = strings.Cut(arg, ":")
	if !ok || session == "" || strings.ContainsAny(session, "/") || strings.HasPrefix(arg, ".") {
		return "", "", false
	}
	return session, file, true
}

// copyIn sends a local file, or standard input.
func copyIn(ctx context.Context, a *app, c *client.Client, session, from, to string) error {
	if to == "" || strings.HasSuffix(to, "/") {
		if from == "-" {
			return usagef("name the file in the session: SESSION:PATH")
		}
		to += filepath.Base(from)
	}
	r, mode := a.stdin, os.FileMode(0)
	if from != "-" {
		f, err := openRegular(from)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		r, mode = f, info.Mode().Perm()
	}
	call, err := c.PutFile(ctx, session, to, mode, r)
	if err != nil {
		return fmt.Errorf("copy to %s: %w", to, err)
	}
	return transferResult(call, to)
}

// openRegular opens a file and nothing else: a FIFO would hang, a device is not
// what anybody means.
func openRegular(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory, and not a regular file: -r copies directories", name)
	} else if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func transferResult(c *client.Call, path string) error {
	switch {
	case c.Error != nil:
		return fmt.Errorf("copy to %s: %w", path, c.Error)
	case c.Status != client.CallCompleted || c.IsError:
		return fmt.Errorf("copy to %s: %s", path, c.Output)
	}
	return nil
}

// copyOut fetches a file to a local one, or to standard output.
func copyOut(ctx context.Context, a *app, c *client.Client, session, from, to string) error {
	if from == "" || strings.HasSuffix(from, "/") {
		return usagef("name the file in the session: SESSION:PATH")
	}
	// The reader ends with an error where the file does not arrive whole.
	r, _, err := c.GetFile(ctx, session, from)
	if missing, ok := errors.AsType[*client.Error](err); ok && missing.Code == client.CodeInvalidPath {
		return &exitError{exitFailed, &missingError{
			what: fmt.Sprintf("copy %s: %s", line(from), lines(missing.Message)),
			hint: fmt.Sprintf("toolctl call %s list . lists the files of the session", line(session)),
		}}
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	defer r.Close()
	if to == "-" {
		w := sandboxOut(a.stdout, a.outTTY)
		if _, err := io.Copy(w, r); err != nil {
			return fmt.Errorf("copy %s: %w", from, err)
		}
		return w.Flush()
	}
	target, err := localTarget(to, from)
	if err != nil {
		return err
	}
	if err := replaceFile(target, r); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// localTarget is the file that to names: in a directory, the remote file's last
// name. The name is the user's own, but it may have been pasted from a sandbox.
func localTarget(to, remote string) (string, error) {
	info, err := os.Stat(to)
	if err == nil && info.IsDir() || strings.HasSuffix(to, "/") {
		name := path.Base(remote)
		if name == "." || name == ".." || name == "/" {
			return "", usagef("%s has no file name: name the local file", remote)
		}
		to = filepath.Join(to, name)
	}
	info, err = os.Lstat(to)
	if err != nil || info.Mode().IsRegular() || info.Mode()&os.ModeSymlink != 0 {
		return to, nil
	}
	return "", fmt.Errorf("%s exists and is not a regular file: it was not overwritten", to)
}

// replaceFile writes a file of this name with what is in r, in one step and only
// when all of it is there. An existing file keeps its permission bits.
func replaceFile(name string, r io.Reader) error {
	dir, base := filepath.Split(name)
	root, err := os.OpenRoot(cmp.Or(dir, "."))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // a directory that was only looked into
	temp := fmt.Sprintf(".toolctl-cp-%d", os.Getpid())
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if info, serr := root.Lstat(base); err == nil && serr == nil && info.Mode().IsRegular() {
		err = f.Chmod(info.Mode().Perm())
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = root.Rename(temp, base)
	}
	if err != nil {
		_ = root.Remove(temp)
	}
	return err
}
