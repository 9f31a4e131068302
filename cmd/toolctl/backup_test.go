package main

import (
	"archive/tar"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	info, err := json.Marshal(client.BackupInfo{Version: 1, Files: n})
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
		if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
			t.Errorf("%s: it leaves %v, %v", name, left, err)
		}
	}
}
