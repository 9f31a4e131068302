package main

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/config"
)

func newBackupCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:     "backup",
		Short:   "Back up the state of the daemon, and restore it",
		Example: "  toolctl backup create /var/backups/toold.tar\n  toolctl backup restore /var/backups/toold.tar",
	}
	c.AddCommand(newBackupCreateCommand(a), newBackupRestoreCommand(a))
	return c
}

func newBackupCreateCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "create FILE",
		Short: "Write the state of the daemon into a file, while it works",
		Long: `Write the database, the saved outputs and the audit log of the daemon into a new file, a
tar that only you can read: it has what calls were given and printed. The daemon goes on
meanwhile. Images, worktrees and what sessions changed in them are not in it. For admins.`,
		Example: "  toolctl backup create /var/backups/toold-$(date +%F).tar",
		RunE: func(c *cobra.Command, args []string) error {
			info, size, err := createBackup(c.Context(), a, args[0])
			if err != nil {
				return err
			}
			return a.print(view{data: info, names: []string{args[0]}, text: func(w io.Writer) {
				fmt.Fprintf(w, "%s has %s, %s\n", line(args[0]), plural(info.Files, "file"), bytesShort(size))
			}})
		},
	}
}

func createBackup(ctx context.Context, a *app, name string) (info *client.BackupInfo, size int64, err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, 0, usagef("%w: name a new file", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(name)
		}
	}()
	progress := a.progress("reading the state of the daemon")
	defer progress.stop()
	r, err := a.client().Backup(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	if size, err = io.Copy(f, r); err != nil {
		return nil, 0, fmt.Errorf("write %s: %w", name, err)
	}
	if err := f.Sync(); err != nil {
		return nil, 0, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, 0, err
	}
	info, err = readBackup(f, func(*tar.Header, io.Reader) error { return nil })
	return info, size, err
}

// readBackup gives each entry of a backup to take, and fails where it is not whole.
func readBackup(r io.Reader, take func(h *tar.Header, body io.Reader) error) (*client.BackupInfo, error) {
	files := 0
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the backup is not whole: its end is missing")
		}
		if err != nil {
			return nil, fmt.Errorf("read the backup: %w", err)
		}
		if h.Name == client.BackupLast {
			info := new(client.BackupInfo)
			if err := json.NewDecoder(io.LimitReader(t, 1<<20)).Decode(info); err != nil {
				return nil, fmt.Errorf("read the backup: %w", err)
			}
			if info.Version != 1 || info.Files != files {
				return nil, fmt.Errorf("the backup has the form %d and %s, not %d: it is of another version, or damaged", info.Version, plural(files, "file"), info.Files)
			}
			return info, nil
		}
		if h.Typeflag == tar.TypeReg {
			files++
		}
		if err := take(h, t); err != nil {
			return nil, err
		}
	}
}

type backupRestoreCommand struct {
	*app
	config string
	rename bool
	sync   func(*os.File) error // (*os.File).Sync, which tests replace
}

func newBackupRestoreCommand(a *app) *cobra.Command {
	b := &backupRestoreCommand{app: a, sync: (*os.File).Sync}
	c := &cobra.Command{
		Use:   "restore FILE [DIR]",
		Short: "Put the state of a daemon in place, before it is started",
		Long: `Put a backup into the state directory that the configuration names, or into DIR, which
must be empty or missing, so that nothing is overwritten, and check the audit log. What
the backup is, is said before; all of it is on the disk when it is done. Start toold then: calls, outputs,
approvals for always and the audit log are there again. Sessions that were live are lost,
as their sandboxes are not in a backup. Where audit.path is configured, put the files of
DIR/audit there, by that name.

Where the daemon that was backed up goes on, on this host or another one with the same
Engine, --new-name tells the two apart.`,
		Example: "  toolctl backup restore /var/backups/toold.tar && systemctl start toold",
		RunE:    func(_ *cobra.Command, args []string) error { return b.run(args) },
	}
	c.Flags().StringVar(&b.config, "config", "", "the configuration that names the state directory (default "+config.DefaultPath+")")
	c.Flags().BoolVar(&b.rename, "new-name", false, "be another daemon than the one that was backed up")
	return c
}

func (b *backupRestoreCommand) run(args []string) error {
	dir := ""
	if len(args) > 1 {
		dir = args[1]
	} else {
		cfg, err := config.Load(b.config)
		if err != nil {
			return err
		}
		dir = cfg.Daemon.StateDir
	}
	f, err := os.Open(args[0])
	if err != nil {
		return usageError(err)
	}
	defer f.Close()
	info, err := checkBackup(f)
	if err != nil {
		return err
	}
	b.say("%s is a backup of form %d that toold %s made at %s; it goes to %s", line(args[0]), info.Version, line(info.Toold), timeText(&info.Made), line(dir))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if there, err := os.ReadDir(dir); err != nil || len(there) > 0 {
		return cmp.Or(err, usagef("%s is not empty: stop toold and move what is there away, or name another directory", dir))
	}
	progress := b.progress("unpacking")
	err = b.unpack(f, dir)
	progress.stop()
	if err != nil {
		return err
	}
	err = b.print(view{data: info, names: []string{dir}, text: func(w io.Writer) {
		fmt.Fprintf(w, "%s of %s\nstart toold, whose state directory is now\n%s\n", plural(info.Files, "file"), timeText(&info.Made), line(dir))
	}})
	if err != nil {
		return err
	}
	return b.checkAudit(filepath.Join(dir, "audit"))
}

// checkBackup reads a backup to its end, before anything is made of it.
func checkBackup(f *os.File) (*client.BackupInfo, error) {
	database := false
	info, err := readBackup(f, func(h *tar.Header, _ io.Reader) error {
		database = database || h.Name == "toold.db" && h.Typeflag == tar.TypeReg
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !database {
		return nil, errors.New("the backup has no toold.db, the database: it is damaged, or of something else")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, usagef("%w: it is read twice: name a regular file", err)
	}
	return info, nil
}

// unpack puts the files of a backup into a directory, and leaves nothing of one that is not whole.
func (b *backupRestoreCommand) unpack(r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // a directory that was only looked into
	_, err = readBackup(r, func(h *tar.Header, body io.Reader) error {
		top, _, _ := strings.Cut(h.Name, "/")
		mode := h.FileInfo().Mode()
		switch {
		case !filepath.IsLocal(h.Name) || top != "toold.db" && top != "owner" && top != "output" && top != "audit" || !mode.IsRegular() && !mode.IsDir():
			return fmt.Errorf("%s is not a file of a backup", line(h.Name))
		case mode.IsDir():
			return cmp.Or(root.MkdirAll(h.Name, 0o700), root.Chmod(h.Name, mode.Perm()))
		case b.rename && h.Name == "owner":
			return nil
		}
		if err := root.MkdirAll(filepath.Dir(h.Name), 0o700); err != nil {
			return err
		}
		f, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(f, body)
		return errors.Join(err, f.Chmod(mode.Perm()), b.sync(f), f.Close())
	})
	if err == nil {
		err = b.syncTree(dir)
	}
	if err != nil {
		for _, name := range []string{"toold.db", "owner", "output", "audit"} {
			err = errors.Join(err, root.RemoveAll(name))
		}
	}
	return err
}

// syncTree has the names of all files below a directory, and its own, on the disk.
func (b *backupRestoreCommand) syncTree(dir string) error {
	sync := func(name string) error {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		return errors.Join(b.sync(f), f.Close())
	}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return sync(name)
	})
	return cmp.Or(err, sync(filepath.Dir(filepath.Clean(dir))))
}

func (b *backupRestoreCommand) checkAudit(dir string) error {
	files, whole, err := record.Log(dir)
	if errors.Is(err, fs.ErrNotExist) {
		b.say("there is no audit log in the backup")
		return nil
	}
	if err != nil {
		return err
	}
	sum, err := record.Verify(files, record.Options{Whole: whole})
	if err == nil && sum.Break != nil {
		err = fmt.Errorf("the audit log in the backup is broken: %w; all else is restored", sum.Break)
	}
	return err
}
