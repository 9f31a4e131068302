package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

// backupOf is a backup of files, given as name and text, name and text.
func backupOf(t *testing.T, files ...string) string {
	t.Helper()
	var b strings.Builder
	w := tar.NewWriter(&b)
	add := func(name, text string) {
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			h.Typeflag, h.Linkname, h.Size, text = tar.TypeSymlink, to, 0, ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for i := 0; i < len(files); i += 2 {
		add(files[i], files[i+1])
		n++
	}
	info, err := json.Marshal(client.BackupInfo{Version: 1, Toold: "0.0.9", Made: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Files: n})
	if err != nil {
		t.Fatal(err)
	}
	add(client.BackupLast, string(info))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestBackup: what create writes restore puts in place, for nobody else to read.
func TestBackup(t *testing.T) {
	whole := backupOf(t, "toold.db", "db", "owner", "me", "output/ses_1/call_1", "out")
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/backup": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(whole)) }})
	dir := t.TempDir()
	file := filepath.Join(dir, "b")
	d.ctl("backup", "create", file).want(t, 0, "3 files", "")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	d.ctl("backup", "create", file).want(t, exitUsage, "", "name a new file")
	for _, flags := range []string{"", "--new-name"} {
		state := filepath.Join(dir, "state"+flags)
		d.ctl(strings.Fields("backup restore "+file+" "+state+" "+flags)...).want(t, 0, "start toold", "no audit log")
		d.ctl(strings.Fields("backup restore "+file+" "+state+"2 "+flags)...).want(t, 0, "start toold", "is a backup of form 1 that toold 0.0.9 made at 2")
		if b, err := os.ReadFile(filepath.Join(state, "output/ses_1/call_1")); err != nil || string(b) != "out" {
			t.Errorf("%q, %v", b, err)
		}
		if _, err := os.Stat(filepath.Join(state, "owner")); (err == nil) == (flags != "") {
			t.Errorf("%s: owner: %v", flags, err)
		}
		d.ctl("backup", "restore", file, state).want(t, exitUsage, "", "is not empty")
	}
}

// TestBackupBroken: of a backup that is not whole, or has what no backup has, nothing is left.
func TestBackupBroken(t *testing.T) {
	whole := backupOf(t, "toold.db", "db", "owner", "me")
	for name, text := range map[string]string{
		"cut":           whole[:1024],
		"cut at once":   "",
		"no tar":        strings.Repeat("x", 2000),
		"another place": backupOf(t, "../evil", "x"),
		"absolute":      backupOf(t, "/tmp/evil", "x"),
		"another name":  backupOf(t, "toold.db.journal", "x"),
		"a link":        backupOf(t, "output", "-> /etc"),
		"twice":         backupOf(t, "toold.db", "x", "toold.db", "y"),
	} {
		d := startFake(t, map[string]http.HandlerFunc{"GET /v1/backup": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }})
		dir := t.TempDir()
		file, state := filepath.Join(dir, "b"), filepath.Join(dir, "state")
		if r := d.ctl("backup", "create", file); strings.Contains(name, "cut") && (r.code != exitFailed || r.stdout != "") {
			t.Errorf("%s: create: %+v", name, r)
		}
		writeFile(t, file, text, 0o600)
		d.ctl("backup", "restore", file, state).want(t, exitFailed, "", "")
		if left, err := os.ReadDir(state); err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
			t.Errorf("%s: it leaves %v, %v", name, left, err)
		}
	}
}

// TestRestoreNeedsDatabase: a backup without one is refused by name, and changes nothing.
func TestRestoreNeedsDatabase(t *testing.T) {
	t.Parallel()
	d := startFake(t, nil)
	dir := t.TempDir()
	file, state := filepath.Join(dir, "b"), filepath.Join(dir, "state")
	for _, files := range [][]string{{"owner", "me"}, {}, {"output/toold.db", "x"}} {
		writeFile(t, file, backupOf(t, files...), 0o600)
		d.ctl("backup", "restore", file, state).want(t, exitFailed, "", "no toold.db")
		if _, err := os.Stat(state); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: the state directory was made: %v", files, err)
		}
	}
}

// TestRestoreIsOnDisk: every file is synced when all of it was written, and every directory when all
// is in it.
func TestRestoreIsOnDisk(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var synced []string
	b := &backupRestoreCommand{sync: func(f *os.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, filepath.Join(dir, strings.TrimPrefix(f.Name(), dir)))
		if info.IsDir() {
			names, rerr := os.ReadDir(f.Name())
			rel, err = fmt.Sprintf("%s/ with %d", rel, len(names)), errors.Join(err, rerr)
		} else {
			rel = fmt.Sprintf("%s of %d", rel, info.Size())
		}
		synced = append(synced, rel)
		return err
	}}
	if err := b.unpack(strings.NewReader(backupOf(t, "toold.db", "db", "output/ses_1/call_1", "out")), dir); err != nil {
		t.Fatal(err)
	}
	want := []string{"toold.db of 2", "output/ses_1/call_1 of 3", "./ with 2", "output/ with 1", "output/ses_1/ with 1"}
	if len(synced) != len(want)+1 || !slices.Equal(synced[:len(want)], want) { // and the directory above
		t.Errorf("synced were %q", synced)
	}
	full := errors.New("the disk is gone")
	b.sync = func(*os.File) error { return full }
	dir = t.TempDir()
	if err := b.unpack(strings.NewReader(backupOf(t, "toold.db", "db")), dir); !errors.Is(err, full) {
		t.Errorf("without a disk: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
