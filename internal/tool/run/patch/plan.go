package patch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/replace"
)

// Old is a file before the patch.
type Old struct {
	Exists  bool
	Content []byte
}

// Change is what becomes of one file in the end, whatever a patch says of it in between.
type Change struct {
	Path   string
	Remove bool
	// Content is the whole new one.
	Content []byte
	// Like is the file whose mode and owner it gets: itself, or the one that was moved
	// there; "" = a new file's.
	Like string
	Exec *bool // see File
	// Level is the loosest that was needed to find a place in it.
	Level Level
}

// ConflictError means that a patch does not fit the files that there are, or itself. Its
// text names the file.
type ConflictError struct {
	Path string
	Line int // of the patch, from 1
	Msg  string
	Err  error // *MismatchError, or nil
	// Missing: there is no such file, before the patch too.
	Missing bool
}

// Error implements error.
func (e *ConflictError) Error() string { return e.Msg }

// Unwrap gives the cause.
func (e *ConflictError) Unwrap() error { return e.Err }

// state is a file while a patch is gone through.
type state struct {
	exists  bool
	content []byte
	like    string
	exec    *bool
	level   Level
	added   bool // by the patch
}

// planner goes through a patch.
type planner struct {
	key   func(string) string
	old   map[string]Old
	now   map[string]*state
	order []string
}

// Plan gives what a patch makes of files, each once, in the order in which it names them.
// key is where a path leads, by which old has all of its files and changes name theirs.
// Nothing of the patch happens if anything of it cannot: the error is a *ConflictError or
// the cause of ctx.
func Plan(ctx context.Context, files []File, key func(string) string, old map[string]Old) ([]Change, error) {
	p := &planner{key: key, old: old, now: make(map[string]*state)}
	for i := range files {
		if err := p.file(ctx, &files[i]); err != nil {
			return nil, err
		}
	}
	var all []Change
	for _, path := range p.order {
		if c, changes := p.change(path); changes {
			all = append(all, c)
		}
	}
	return all, nil
}

// of is the file at a path as the patch has made it so far.
func (p *planner) of(path string) *state {
	if s := p.now[path]; s != nil {
		return s
	}
	was := p.old[path]
	s := &state{exists: was.Exists, content: was.Content}
	if was.Exists {
		s.like = path
	}
	p.now[path] = s
	p.order = append(p.order, path)
	return s
}

func (p *planner) file(ctx context.Context, f *File) error {
	s := p.of(p.key(f.Path))
	fail := func(format string, args ...any) error {
		return &ConflictError{Path: p.key(f.Path), Line: f.Line, Msg: fmt.Sprintf(format, args...)}
	}
	switch {
	case f.Kind == Add && s.exists:
		return fail("%s exists: a file that is added may not be there; update it, or delete it in the same patch before", plain.Name(f.Path))
	case f.Kind == Add:
		*s = state{exists: true, content: likeBefore(p.old[s.like].Content, f.Content), like: s.like, exec: f.Exec, added: true}
		return nil
	case !s.exists:
		return &ConflictError{
			Path: p.key(f.Path), Line: f.Line, Missing: !p.old[p.key(f.Path)].Exists,
			Msg: fmt.Sprintf("%s does not exist: the patch cannot %s it", plain.Name(f.Path), f.Kind),
		}
	case f.Kind == Delete:
		s.exists, s.content = false, nil
		return nil
	}
	made, err := f.Apply(ctx, s.content)
	if mismatch, ok := err.(*MismatchError); ok { //nolint:errorlint // Apply gives it as it is
		return &ConflictError{Path: p.key(f.Path), Line: f.Line, Msg: plain.Name(f.Path) + ": " + mismatch.Error(), Err: mismatch}
	}
	if err != nil && ctx.Err() != nil {
		return err
	}
	if err != nil {
		return fail("%s: %s", plain.Name(f.Path), err)
	}
	s.content, s.level = made.Text, max(s.level, made.Level)
	if f.Exec != nil {
		s.exec = f.Exec
	}
	if f.To == "" || p.key(f.To) == p.key(f.Path) {
		return nil
	}
	to := p.of(p.key(f.To))
	if to.exists {
		return fail("%s exists: %s may not be moved onto it; delete it in the same patch before", plain.Name(f.To), plain.Name(f.Path))
	}
	*to = *s
	*s = state{}
	return nil
}

// likeBefore is the content of a file that is added in the place of one that was deleted. It keeps a
// byte order mark, and the ends of lines where all were CRLF and the new ones say nothing of them.
func likeBefore(old []byte, content string) []byte {
	if strings.HasPrefix(string(old), bom) && !strings.HasPrefix(content, bom) {
		content = bom + content
	}
	return replace.WithEnds(old, []byte(content))
}

// change compares a file with what it was.
func (p *planner) change(path string) (c Change, changes bool) {
	was, is := p.old[path], p.now[path]
	c = Change{Path: path, Remove: !is.exists, Content: is.content, Like: is.like, Exec: is.exec, Level: is.level}
	switch {
	case !is.exists:
		return c, was.Exists
	// What is added in the place of a file that was deleted counts as a change, whatever it was: or the
	// answer would say to one who may not read that file whether a guess is its content.
	case !was.Exists || is.exec != nil || is.like != path || is.added:
		return c, true
	}
	return c, !slices.Equal(was.Content, is.content)
}
