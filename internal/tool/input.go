package tool

import (
	"encoding/json"
	"slices"
)

// Input is what a call asks for, decoded once, from the same values as the canonical
// bytes beside it (see Invocation). It does not change.
//
// What only some tools have to say is in the interfaces below. Whoever needs it asks the
// input for it, and never for the name of its tool.
type Input interface {
	// Access says what a call will touch where bash commands are read by r;
	// nil is bash with the environment of every sandbox. It is pure.
	Access(r *Reader) Access
}

// Reader is the shell that reads commands, with what the environment of a session or a call
// changes of how it finds directories.
type Reader struct {
	Shell []string // its name or path, and its options; none is bash
	// Homeless: HOME is set to what is not known, so that "~" may stand for any directory.
	Homeless bool
	// Astray: cd may lead to another directory than its argument says, by CDPATH or PWD.
	Astray bool
}

// Nearer is an Input with parts that make no difference to what its call does.
type Nearer interface {
	// Near is the input without them. It is for comparing and hashing only.
	Near() json.RawMessage
}

// Timed is an Input that may ask for a time limit of its own.
type Timed interface {
	// Timeout is in milliseconds; 0: it asks for none.
	Timeout() int64
}

// Placed is an Input whose paths begin where its command runs. The agent resolves that
// directory first, and then the paths that it is told of.
type Placed interface {
	// Workdir is as the input has it; "" is the worktree.
	Workdir() string
}

// Visible is an Input that has something to show to whom is asked about its call.
type Visible interface {
	// Shown is that, by the names that it has in an approval; whole says that it is all
	// there is to see.
	Shown() (parts map[string]string, whole bool)
}

// values are the fields of an input in its normal form. Those that are absent or of
// another type are "" and 0.
type values map[string]any

func (v values) text(name string) string {
	s, _ := v[name].(string)
	return s
}

func (v values) number(name string) int64 {
	n, _ := v[name].(json.Number)
	i, err := n.Int64()
	if err != nil {
		return 0
	}
	return i
}

// fileInput is the Input of a tool that touches one file.
type fileInput struct {
	path       string
	permission string
	write      bool
	// finds: it looks for text in the file, so that whether it can be done says what is there.
	finds bool
}

// aFile decodes the input of such a tool, whose field called name is the path.
func aFile(permission, name string, write bool) func(values) Input {
	return func(v values) Input { return &fileInput{path: v.text(name), permission: permission, write: write} }
}

// anEdit decodes the input of a tool that finds text in the file to change: the first edit
// does, unless it has none to find and so creates the file.
func anEdit(v values) Input {
	in := &fileInput{path: v.text("file_path"), permission: PermissionEdit, write: true}
	first := v
	if all, _ := v["edits"].([]any); len(all) > 0 {
		first, _ = all[0].(map[string]any) // the schema wants objects
	}
	in.finds = first.text("old_string") != ""
	return in
}

// Access implements Input.
func (in *fileInput) Access(*Reader) Access {
	a := Access{
		Requests: []Request{{Permission: in.permission, Pattern: in.path, Path: in.path, Write: in.write}},
		Prepare:  true,
	}
	if in.finds {
		a.Requests = append(a.Requests, Request{Permission: PermissionRead, Pattern: in.path, Path: in.path})
	}
	return a
}

// Shown implements Visible.
func (in *fileInput) Shown() (map[string]string, bool) {
	return map[string]string{"path": in.path}, false
}

// searchInput is the Input of a tool that searches for its pattern below a path.
type searchInput struct {
	pattern, path string
	permission    string
	place         func(path, pattern string) (string, string)
}

// aSearch decodes the input of such a tool. place says which path it searches below, with
// the rest of the pattern.
func aSearch(permission string, place func(path, pattern string) (string, string)) func(values) Input {
	return func(v values) Input {
		return &searchInput{pattern: v.text("pattern"), path: v.text("path"), permission: permission, place: place}
	}
}

// asGiven is the place of a pattern that names none.
func asGiven(path, pattern string) (string, string) { return path, pattern }

// Access implements Input. Only a path that is given has to be resolved.
func (in *searchInput) Access(*Reader) Access {
	dir, _ := in.place(in.path, in.pattern)
	return Access{
		Requests: []Request{{Permission: in.permission, Pattern: in.pattern, Path: dir, Search: true}},
		Prepare:  dir != "",
		Title:    in.pattern,
	}
}

// Shown implements Visible.
func (in *searchInput) Shown() (map[string]string, bool) {
	return map[string]string{"path": in.path}, false
}

// Permissions are those that calls of d ask for whatever their input.
func (d *Definition) Permissions() []string {
	var all []string
	for _, r := range d.decode(nil).Access(nil).Requests {
		if !slices.Contains(all, r.Permission) {
			all = append(all, r.Permission)
		}
	}
	return all
}
