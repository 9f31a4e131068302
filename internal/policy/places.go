package policy

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/toold/toold/internal/tool"
)

// Places is the lay of a sandbox: what makes of the paths that a call names the
// requests that are judged.
type Places struct {
	// Worktree is where it is mounted.
	Worktree string
	// Dir is the directory that a command starts in, all links followed; "" where that is not known.
	Dir string
	// Mounts are the targets of further directories of the host. What is in none
	// of them is the sandbox's own.
	Mounts []string
	// Alone: a path that nobody knows leads to nothing of a person's beside the worktree: to no mount but such that
	// are Granted or kept from who does not name them, no cache that others write, nothing of the host but its programs.
	Alone bool
	// Closed are those of Mounts that are kept from who names nothing in them.
	Closed []string
	// Granted: the mounts are what the only user has asked for, so the built-in line asks about none.
	Granted bool
	// Resolve finds where a path of an Access leads. ok is false where that could
	// not be found out.
	Resolve func(asked string) (to Resolved, ok bool)
}

// Resolved is where a path leads, all links followed.
type Resolved struct {
	Path string // absolute
	Dir  bool
}

// The lay of every sandbox, as package sandbox has it.
const (
	// Workspace is where worktrees are mounted unless a session says otherwise.
	Workspace = "/workspace"
	// Home is the home directory of the tools: what "~/" and "$HOME/" at the
	// start of a pattern stand for.
	Home = "/home/tool"
	// Caches is where sessions have their caches.
	Caches = "/caches"
	// Outputs is where sessions find the whole outputs of their calls.
	Outputs = "/run/toold/output"
)

// NoSession are the places where no session is meant: a worktree, and nothing else.
var NoSession = Places{Worktree: Workspace, Alone: true}

// AsWritten is what policy judges of a call when there is no sandbox to resolve
// its paths in: they lead where their text says, as if there were no links. r
// reads the commands of bash, as for Access; of in, Dir and Resolve are not looked at.
func AsWritten(inv *tool.Invocation, r *tool.Reader, in Places) []Request {
	workdir := ""
	if placed, ok := inv.Input.(tool.Placed); ok {
		workdir = placed.Workdir()
	}
	places := lexical(cmp.Or(in.Worktree, Workspace), workdir)
	places.Mounts, places.Closed, places.Alone, places.Granted = in.Mounts, in.Closed, in.Alone, in.Granted
	return places.Requests(inv.Input.Access(r))
}

// lexical are the places of AsWritten. workdir is the directory that a call asks
// to run in, "" for the worktree.
func lexical(worktree, workdir string) *Places {
	from := Under(worktree, workdir)
	return &Places{Worktree: worktree, Dir: from, Resolve: func(asked string) (Resolved, bool) {
		return Resolved{Path: Under(from, asked), Dir: strings.HasSuffix(asked, "/")}, true
	}}
}

// Under is p from dir on, if it is not absolute, where nothing on it is a link.
func Under(dir, p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(dir, p)
}

// Requests is what policy judges of a call: what it names, where that leads, and
// whether it leaves what is the session's own.
func (p *Places) Requests(a tool.Access) []Request {
	m := mapping{Places: p, all: make([]Request, 0, len(a.Requests))}
	for i := range a.Requests {
		m.add(&a.Requests[i])
	}
	for _, l := range a.Links {
		to, ok := m.Resolve(l.Name)
		m.leave(&tool.Request{Pattern: l.Text, Path: l.Name, Outside: true}, to, ok)
	}
	return m.all
}

// mapping is one Requests.
type mapping struct {
	*Places
	all     []Request
	outside map[Request]bool // requests for external_directory that there are already
}

func (m *mapping) add(r *tool.Request) {
	q := Request{Permission: r.Permission, Pattern: r.Pattern, Opaque: r.Opaque, Why: r.Why, Save: r.Save, Also: r.Also, Prefixed: r.Prefixed, Variables: r.Variables, Wraps: r.Wraps}
	if r.Permission == tool.PermissionBash {
		q.Apart = r.Apart || m.Dir == "" || Under(m.Dir, r.Dir) != m.Worktree
		if q.Apart && isLiteral(q.Save) {
			q.Save = ""
		}
	}
	if r.Path == "" {
		switch {
		case r.Weak && (m.Granted || r.Matched && !m.Alone || !slices.ContainsFunc(m.Mounts, func(mount string) bool { return !m.isOwn(mount) })):
			return // no path that the text said would be asked about, or this one would be
		case r.Program != nil:
			m.program(q, r.Program)
			return
		case r.Opaque && r.Permission == tool.PermissionBash:
			m.elsewhere(&q)
		}
		if r.Write || r.Outside {
			q.Opaque, q.Unknown, q.Why, q.Save = true, true, whyRuntime, ""
			q.Confined, q.Weak, q.Matched = m.Alone && r.Outside, r.Weak, r.Matched
		}
		m.all = append(m.all, q)
		if r.Search {
			// It searches all of the worktree.
			m.all = append(m.all, Request{Permission: r.Permission, Pattern: ".", Path: m.Worktree, Relative: "."})
		}
		return
	}
	to, ok := m.Resolve(r.Path)
	ok = ok && (!r.Write || !ofProcess(to.Path))
	if !r.Outside {
		if r.Search {
			// What is looked for, and where.
			m.all = append(m.all, q)
			q = Request{Permission: r.Permission, Pattern: r.Path}
		}
		q.Unknown = r.Write && !ok
		m.all = append(m.all, m.onFile(q, to, ok))
	}
	m.leave(r, to, ok)
}

// Why requests on paths are opaque.
const (
	whyRuntime    = "which file it is, is only known at run time"
	whyUnresolved = "it is not known where this path leads"
)

// onFile makes q a request on the file that a path leads to. Where that is not
// known, no pattern may allow it.
func (m *mapping) onFile(q Request, to Resolved, ok bool) Request {
	if !ok {
		q.Opaque, q.Why, q.Save = true, whyUnresolved, ""
		return q
	}
	q.Path, q.Relative = to.Path, RelativeTo(m.Worktree, to.Path)
	q.Save = q.Path
	if q.Relative != "" && q.Relative != "." {
		q.Save = q.Relative
	}
	if !isLiteral(q.Save) {
		q.Save = ""
	}
	return q
}

// leave asks for external_directory where a path leads to a place that is not
// the session's own. Reading what the sandbox itself consists of is no such thing.
func (m *mapping) leave(r *tool.Request, to Resolved, ok bool) {
	q := Request{Permission: PermissionExternal, Pattern: r.Path}
	switch {
	case sinks[r.Path]:
		return
	case !ok:
		q.Opaque, q.Unknown, q.Why, q.Confined = true, true, whyUnresolved, m.Alone && (r.Outside || len(m.Closed) == 0) // nothing is kept from the tools for files
	case m.isOwn(to.Path), sinks[to.Path], !r.Write && m.isRoot(to.Path):
		return
	default:
		q.Path, q.Save = to.Path, directoryPattern(to)
		q.Confined = m.Granted && m.isMounted(to.Path)
	}
	key := q
	if q.Path != "" {
		key.Pattern = "" // however it was named
	}
	if m.outside[key] {
		return
	}
	if m.outside == nil {
		m.outside = make(map[Request]bool)
	}
	m.outside[key] = true
	m.all = append(m.all, q)
}

// directoryPattern is what an approval for always would allow: the directory of a
// file with all that is in it; "" where no pattern says just that.
func directoryPattern(to Resolved) string {
	dir := path.Dir(to.Path)
	switch {
	case to.Dir && isLiteral(to.Path) && to.Path != "/":
		return to.Path
	case !to.Dir && isLiteral(dir) && dir != "/":
		return dir + "/*"
	}
	return ""
}

// own are the places that are the session's beside its worktree.
var own = []string{"/tmp", "/dev/shm", Home, Outputs, Caches}

// isOwn reports whether p is the session's own: reading and writing there is what
// it was made for.
func (m *mapping) isOwn(p string) bool {
	return below(p, m.Worktree) || slices.ContainsFunc(own, func(dir string) bool { return below(p, dir) })
}

// isRoot reports whether p is of the sandbox's own root filesystem, "/" included.
// That is read-only and has nothing in it that a session was not meant to read;
// whose files it shows was decided by whoever set up the daemon. A mount is no part
// of it, and no directory above one is: to list or search that is to reach the
// mount. Mounts at places that are the session's own are reached without a question
// anyway.
func (m *mapping) isRoot(p string) bool {
	return !slices.ContainsFunc(m.Mounts, func(mount string) bool {
		return (below(p, mount) || below(mount, p)) && !m.isOwn(mount)
	})
}

// Closable are the mounts that can be kept from who names nothing in them: those that external_directory is about,
// at places that are not the session's own. None that has another in it, or is in one, is closed: what is to be seen
// in one of the two would lie in what is not.
func (p *Places) Closable() []string {
	m := mapping{Places: p}
	return slices.DeleteFunc(slices.Clone(p.Mounts), func(mount string) bool {
		return m.isOwn(mount) || slices.ContainsFunc(p.Mounts, func(other string) bool { return other != mount && (below(other, mount) || below(mount, other)) })
	})
}

// isMounted reports whether p is in a mount, or a directory above one, which shows no more than its name.
func (m *mapping) isMounted(p string) bool {
	return slices.ContainsFunc(m.Mounts, func(mount string) bool { return below(p, mount) || below(mount, p) })
}

// sinks are devices that keep nothing of what is written to them, and streams
// that a command has anyway.
var sinks = map[string]bool{
	"/dev/null": true, "/dev/zero": true, "/dev/full": true, "/dev/tty": true,
	"/dev/stdin": true, "/dev/stdout": true, "/dev/stderr": true,
	"/dev/fd/0": true, "/dev/fd/1": true, "/dev/fd/2": true,
}

// ofProcess reports whether a path leads to another file for each process, such
// as a descriptor of its own.
func ofProcess(p string) bool {
	switch p {
	case "/dev/stdin", "/dev/stdout", "/dev/stderr":
		return true
	}
	return below(p, "/proc") || below(p, "/dev/fd")
}

// below reports whether p is dir or in it.
func below(p, dir string) bool { return RelativeTo(dir, p) != "" }

// RelativeTo is p below dir without dir, "." for dir itself and "" for what is
// not below it.
func RelativeTo(dir, p string) string {
	if p == dir {
		return "."
	}
	rest, ok := strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/")
	if !ok {
		return ""
	}
	return rest
}

// isLiteral reports whether a pattern matches nothing but itself.
func isLiteral(p string) bool {
	return !strings.ContainsAny(p, "*?") && expandHome(p) == p
}
