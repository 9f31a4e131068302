package apply

import (
	"bufio"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/thread"
)

// raw is a string of any bytes, which strings of JSON are not.
type raw string

func (r raw) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(r)), nil
}

func (r *raw) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	*r = raw(b)
	return err
}

// plan is all that is to be done to a source: a line of JSON for it, one for each task,
// and one for each mode.
type plan struct {
	Source raw         `json:"source"` // its path, as it was
	Ino    uint64      `json:"ino"`
	Owner  thread.User `json:"owner"`
	// Token is random. All files that are made for the plan have it in their names.
	Token string `json:"token"`
	Tasks int    `json:"tasks"`
	Modes int    `json:"modes"`
	tasks []task // a directory before what is in it
	modes []mode // likewise
}

// task makes one path what it is to be.
type task struct {
	Path   raw        `json:"path"`
	Was    version    `json:"was"`
	Want   version    `json:"want"`
	Link   raw        `json:"link,omitempty"` // where it leads
	At     int64      `json:"at,omitempty"`   // of the content in the spool
	Parent uint64     `json:"parent,omitempty"`
	Home   home       `json:"home,omitzero"`
	Of     raw        `json:"of,omitempty"` // the session's version, where Want was merged
	Build  bool       `json:"build,omitempty"`
	Over   bool       `json:"over,omitempty"`  // Was is not what the session began with
	MTime  int64      `json:"mtime,omitempty"` // ns; 0 is that of its writing
	Attrs  attributes `json:"attrs,omitzero"`
}

// mode is what a directory gets when all is in it; until then its owner can write to it.
type mode struct {
	Path raw    `json:"path"`
	Ino  uint64 `json:"ino,omitempty"` // 0 where it is made
	Perm uint32 `json:"perm"`
	// Lent: it is no change, but what the directory had before it was opened for the time.
	Lent bool `json:"lent,omitempty"`
}

func (c *change) task() task {
	return task{
		Path: raw(c.path), Was: c.now, Want: c.want(), Link: raw(c.link), At: c.at, Parent: c.parent, Home: c.home,
		Of: c.merged, Build: c.build, Over: c.over, MTime: c.mtime, Attrs: c.attrs,
	}
}

// removes says whether what was there has to go before anything can take its place.
func (t *task) removes() bool {
	return t.Was.Kind != "" && (t.Want.Kind == "" || (t.Was.Kind == beneath.Dir) != (t.Want.Kind == beneath.Dir))
}

// own is the record of what the task has written.
func (t *task) own(ctime, size int64) own {
	return own{CTime: ctime, Size: size, Sum: t.Want.Sum, Of: t.Of}
}

// content says whether the task writes something under a name of ours first.
func (t *task) content() bool { return t.Want.Kind == beneath.File || t.Want.Kind == beneath.Link }

// prefix is what the names of all files begin with that are made for the plan. The package
// treediff knows them.
func (p *plan) prefix() string { return ".toold-" + p.Token + "-" }

// temp is the name of a task's file until it takes its place.
func (p *plan) temp(i int) string { return fmt.Sprint(p.prefix(), i) }

// plan makes the plan of what the survey has found.
func (s *survey) plan(j *Job) (*plan, error) {
	place, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", j.Source.Fd()))
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(j.Source.Fd()), &st); err != nil {
		return nil, err
	}
	p := &plan{Source: raw(place), Ino: st.Ino, Owner: j.Owner, Token: rand.Text(), tasks: s.tasks}
	for _, m := range s.modes {
		p.modes = append(p.modes, *m)
	}
	slices.SortFunc(p.modes, func(a, b mode) int { return compare(string(a.Path), string(b.Path)) })
	p.Tasks, p.Modes = len(p.tasks), len(p.modes)
	return p, nil
}

func (p *plan) write(w io.Writer) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	err := enc.Encode(p)
	for i := 0; err == nil && i < len(p.tasks); i++ {
		err = enc.Encode(&p.tasks[i])
	}
	for i := 0; err == nil && i < len(p.modes); i++ {
		err = enc.Encode(&p.modes[i])
	}
	return errors.Join(err, b.Flush())
}

func readPlan(r io.Reader) (*plan, error) {
	dec, p := json.NewDecoder(bufio.NewReader(r)), new(plan)
	err := dec.Decode(p)
	for i := 0; err == nil && i < p.Tasks; i++ {
		var t task
		err = dec.Decode(&t)
		p.tasks = append(p.tasks, t)
	}
	for i := 0; err == nil && i < p.Modes; i++ {
		var m mode
		err = dec.Decode(&m)
		p.modes = append(p.modes, m)
	}
	if err != nil {
		return nil, fmt.Errorf("read the plan of an apply: %w", err)
	}
	return p, nil
}

// open opens the source again, over no link. It may hang where its file system does.
func (p *plan) open() (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, string(p.Source), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("%w: open %s: %w", errElsewhere, shown(string(p.Source)), err)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", shown(string(p.Source)), err)
	}
	f := os.NewFile(uintptr(fd), string(p.Source))
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Ino != p.Ino {
		return nil, errors.Join(fmt.Errorf("%w: %s is another directory now", errElsewhere, shown(strings.TrimSuffix(string(p.Source), " (deleted)"))), err, f.Close())
	}
	return f, nil
}

// errElsewhere: the source is not at its path any more.
var errElsewhere = errors.New("the source was moved or removed")
