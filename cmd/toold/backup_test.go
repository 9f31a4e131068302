package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/testrig"
)

// TestBackupOfAudit: an audit log of another name is in a backup by the name of a state directory, and one whose
// files get other names meanwhile has no gap.
func TestBackupOfAudit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := &backups{audit: filepath.Join(dir, "mine.log")}
	write := func(n int) { testrig.Must(t, os.WriteFile(b.audit, []byte(strconv.Itoa(n)+"\n"), 0o600)) }
	write(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; n < 500 && t.Context().Err() == nil; n++ {
			_ = errors.Join(os.Rename(b.audit, record.OldName(b.audit, uint64(n))), os.WriteFile(b.audit, []byte(strconv.Itoa(n)+"\n"), 0o600))
		}
	}()
	t.Cleanup(func() { <-done })
	for range 20 {
		var out bytes.Buffer
		tw := &backupTar{ctx: t.Context(), tar: tar.NewWriter(&out)}
		if err := b.addAudit(tw); err != nil {
			continue // more files than it can read, which is said
		}
		testrig.Must(t, tw.tar.Close())
		seen, last := map[string]string{}, ""
		for r := tar.NewReader(&out); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			testrig.Must(t, err)
			text, err := io.ReadAll(r)
			testrig.Must(t, err)
			seen[h.Name], last = string(text), h.Name
		}
		for n := 1; n < len(seen); n++ {
			if got := seen["audit/"+filepath.Base(record.OldName(record.DefaultName, uint64(n)))]; got != strconv.Itoa(n-1)+"\n" {
				t.Fatalf("file %d of %d has %q", n, len(seen), got)
			}
		}
		// A log has no current file for a moment, and an empty one for another.
		if text := strconv.Itoa(len(seen)-1) + "\n"; last == "" || seen[last] != text && seen[last] != "" {
			t.Fatalf("the last of %d files is %s: %q", len(seen), last, seen[last])
		}
	}
}
