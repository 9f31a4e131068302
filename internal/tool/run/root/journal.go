package root

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// journalPrefix begins the names of what a transaction makes beside files.
	journalPrefix = ".toold-tx-"
	// maxRecord bounds one record: a hundred paths, escaped.
	maxRecord = 4 << 20
	// maxSteps and maxRecords bound what is believed of a journal, which comes out of a
	// sandbox.
	maxSteps   = 256
	maxRecords = 64
	// maxSummed is the largest file that is read in order to compare it.
	maxSummed = 64 << 20
)

// record is what the journal says of one transaction.
type record struct {
	token string
	done  bool     // all of it was to be seen; what was there before was being removed
	Steps []entry  `json:"steps"`
	Dirs  []string `json:"dirs,omitempty"` // that are made, the upper ones first
}

// entry is one step of it.
type entry struct {
	Path string `json:"path"`
	// New and Old are the names, beside the file, of the new content and of what was there.
	New string `json:"new"`
	Old string `json:"old"`
	// Was and Is are hashes of what was there and of what comes; "" = no file.
	Was string `json:"was,omitempty"`
	Is  string `json:"is,omitempty"`
}

// journal keeps records in a directory where the tool user cannot go. The work is that of
// a goroutine of its own, as those who call have the tool user's ids.
type journal struct{ dir *os.File }

func openJournal(dir string) (*journal, error) {
	if dir == "" {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return &journal{f}, nil
}

func (j *journal) close() {
	if j != nil {
		_ = j.dir.Close()
	}
}

// apart runs f on a thread that has the agent's own ids.
func apart(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return <-done
}

func (j *journal) path(name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", j.dir.Fd(), name)
}

// put writes a record. It is there whole or not at all.
func (j *journal) put(r *record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(text) > maxRecord {
		return fmt.Errorf("its %d bytes are more than %d", len(text), maxRecord)
	}
	return apart(func() error {
		f, err := os.OpenFile(j.path(r.token+".part"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(text)
		if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
			err = os.Rename(f.Name(), j.path(r.token))
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
		return err
	})
}

// doneSuffix is at the end of the name of a record of which all is to be seen.
const doneSuffix = ".done"

// name is that of the record's file.
func (r *record) name() string {
	if r.done {
		return r.token + doneSuffix
	}
	return r.token
}

// finish notes that all of a record is to be seen. From then on it is not undone.
func (j *journal) finish(r *record) error {
	err := apart(func() error { return os.Rename(j.path(r.token), j.path(r.token+doneSuffix)) })
	r.done = err == nil
	return err
}

// drop removes a record. One that stays is gone through in vain.
func (j *journal) drop(r *record) {
	_ = apart(func() error { return os.Remove(j.path(r.name())) })
}

// tokenPattern and namePattern are how names of ours look.
var (
	tokenPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{32}$`) })
	namePattern  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\.toold-tx-[0-9a-f]{32}-[0-9]{1,3}\.(new|old)$`) })
)

// readRecords gives the records in a directory. One that cannot be one is an error, for
// which the others do not wait.
func readRecords(dir string) (all []*record, errs error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if i == maxRecords {
			return all, errors.Join(errs, fmt.Errorf("%d records are more than %d", len(names), maxRecords))
		}
		token, done := strings.CutSuffix(name.Name(), doneSuffix)
		if !tokenPattern().MatchString(token) {
			continue // one that was not written to its end, of which nothing was begun
		}
		r, err := readRecord(filepath.Join(dir, name.Name()))
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("record %s: %w", name.Name(), err))
			continue
		}
		r.token, r.done = token, done
		all = append(all, r)
	}
	return all, errs
}

func readRecord(file string) (*record, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || fi.Mode().Type() != 0 {
		return nil, errors.Join(err, errors.New("it is no plain file"))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return nil, err
	}
	return parseRecord(filepath.Base(file), text)
}

// parseRecord reads a record that comes out of a sandbox.
func parseRecord(token string, text []byte) (*record, error) {
	r := &record{token: token}
	if len(text) > maxRecord {
		return nil, errors.New("it is too large")
	}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, err
	}
	if len(r.Steps) > maxSteps || len(r.Dirs) > maxSteps*64 {
		return nil, fmt.Errorf("%d steps and %d directories are too many", len(r.Steps), len(r.Dirs))
	}
	for _, e := range r.Steps {
		if !plainPath(e.Path) || !namePattern().MatchString(e.New) || !namePattern().MatchString(e.Old) || e.New == e.Old || e.Was == "" && e.Is == "" {
			return nil, fmt.Errorf("the step of %q is none of ours", e.Path)
		}
	}
	for _, d := range r.Dirs {
		if !plainPath(d) {
			return nil, fmt.Errorf("the directory %q is none of ours", d)
		}
	}
	return r, nil
}

// plainPath reports whether a path is canonical.
func plainPath(p string) bool {
	return checkPath(p) == nil && p != "/" && fs.ValidPath(strings.TrimPrefix(p, "/"))
}

// sumOf is a hash of a file's content.
func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// readKnown is all of the present content, without going to another thread.
func (p *Replacement) readKnown() ([]byte, error) {
	if p.known {
		return p.old, nil
	}
	if _, err := unix.Seek(p.oldfd, 0, unix.SEEK_SET); err != nil {
		return nil, sysError("read", p.path, err)
	}
	data, err := io.ReadAll(io.LimitReader(fdReader(p.oldfd), maxSummed+1))
	if err == nil && len(data) > maxSummed {
		err = tooLarge(p.path, maxSummed)
	}
	return data, err
}

// fdReader reads from a descriptor.
type fdReader int

// Read implements io.Reader.
func (r fdReader) Read(p []byte) (int, error) { return readOnce(int(r), "", p) }
