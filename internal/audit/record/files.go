package record

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// DefaultName is the file of a log in a directory of its own.
const DefaultName = "audit.jsonl"

// seqWidth makes the names of older files sort in the order of their records.
const seqWidth = 20

// OldName is the name that a log file gets when another takes its place: that of
// the log with the number of its first record, audit.00000000000000000001.jsonl.
func OldName(path string, first uint64) string {
	dir, base := filepath.Split(path)
	ext := filepath.Ext(base)
	return filepath.Join(dir, fmt.Sprintf("%s.%0*d%s", strings.TrimSuffix(base, ext), seqWidth, first, ext))
}

// Files lists the files of the log at path that exist, oldest first.
func Files(path string) ([]string, error) {
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return nil, err
	}
	ext := filepath.Ext(base)
	stem := strings.TrimSuffix(base, ext) + "."
	var files []string
	current := false
	for _, e := range entries {
		name := e.Name()
		if name == base {
			current = true
			continue
		}
		number, ok := strings.CutPrefix(name, stem)
		if !ok {
			continue
		}
		if number, ok = strings.CutSuffix(number, ext); !ok || len(number) != seqWidth {
			continue
		}
		if _, err := strconv.ParseUint(number, 10, 64); err == nil {
			files = append(files, filepath.Join(dir, name))
		}
	}
	slices.Sort(files)
	if current {
		files = append(files, path)
	}
	return files, nil
}

// Log gives the files that what means: a file alone, or for a directory all
// files of the log in it that has DefaultName.
func Log(what string) (files []string, whole bool, err error) {
	fi, err := os.Stat(what)
	if err != nil {
		return nil, false, err
	}
	if !fi.IsDir() {
		return []string{what}, false, nil
	}
	files, err = Files(filepath.Join(what, DefaultName))
	if err == nil && len(files) == 0 {
		err = &fs.PathError{Op: "look for " + DefaultName + " in", Path: what, Err: fs.ErrNotExist}
	}
	return files, true, err
}
