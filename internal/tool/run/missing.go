package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
)

const (
	// siblingsSeen bounds the entries that are compared with a missing name.
	siblingsSeen = 20000
	siblings     = 3
)

// notFound words that path does not exist, with what else it could mean.
func notFound(ctx context.Context, env *Env, path string) string {
	return plain.Name(path) + " does not exist" + meant(ctx, env, path)
}

// meant goes on after "does not exist": names like the missing one in the nearest directory that
// exists, a file of the worktree for a path outside of it, or its name elsewhere in the worktree.
func meant(ctx context.Context, env *Env, path string) string {
	var b strings.Builder
	here, ended := inWorktree(ctx, env, path)
	worktree := ""
	if outside(env, path) {
		worktree = "The worktree is " + plain.Name(env.Worktree)
	}
	switch {
	case here != "":
		worktree += ", and has " + plain.Name(here)
	case ended:
		worktree += unsearched(path)
	}
	dir, name := path, ""
	for dir != "/" && dir != "" {
		i := strings.LastIndexByte(dir, '/')
		dir, name = dir[:i], dir[i+1:]
		near, err := similarNames(ctx, env, dir+"/", name)
		siblings := near.same != "" || len(near.names) > 0
		if here != "" && !siblings {
			break
		}
		if root.CodeOf(err) == root.NotExist {
			fmt.Fprintf(&b, ", nor does %s", plain.Name(dir+"/"))
			continue
		}
		if worktree != "" && here == "" {
			b.WriteString(". " + worktree)
		}
		switch {
		case near.same != "":
			fmt.Fprintf(&b, ". One of the same letters in another Unicode form does: give it as %s", strconv.QuoteToASCII(dir+"/"+near.same))
		case siblings:
			b.WriteString(". Did you mean one of these?")
			for _, n := range near.names {
				b.WriteString("\n" + plain.Name(dir+"/"+n))
			}
			if here != "" {
				return b.String() + "\n" + worktree
			}
		default:
			b.WriteString(elsewhere(ctx, env, path))
		}
		break
	}
	if here != "" {
		b.WriteString(". " + worktree)
	}
	return b.String()
}

// nearNames are those in a directory that a missing name may have been meant to be.
type nearNames struct {
	same  string // has the same letters in another Unicode form
	names []string
}

// outside reports whether a path is neither the worktree nor below it.
func outside(env *Env, path string) bool { return path != env.Worktree && !isBelow(path, env.Worktree) }

// inWorktree is the file of the worktree that a missing path elsewhere may mean, as it may be that
// of another machine (/repo/a/b): the one with most of its last names, or one of its last name
// anywhere; "" is none. ended is as sameName's.
func inWorktree(ctx context.Context, env *Env, path string) (_ string, ended bool) {
	hidden, err := unreadOf(env)
	if err != nil || !outside(env, path) {
		return "", false
	}
	for rest := path; rest != ""; {
		at := env.Worktree + rest
		if _, _, err := env.Root.Peek(ctx, at); err == nil && !hidden.hidesName(at) {
			return at, false
		}
		next := strings.IndexByte(rest[1:], '/')
		if next < 0 {
			break
		}
		rest = rest[1+next:]
	}
	return sameName(ctx, env, path)
}

// nameLooks and nameTime bound what sameName looks at, in entries of the worktree and in time: its
// file system may be slow.
const (
	nameLooks = 5000
	nameTime  = 2 * time.Second
)

// sameName is the file or directory of the worktree with the last name of path that is nearest to
// its top; "" is none among those that it looked at. ended says that there are more.
func sameName(ctx context.Context, env *Env, path string) (found string, ended bool) {
	hidden, err := unreadOf(env)
	name := path[strings.LastIndexByte(path, '/')+1:]
	if err != nil || name == "" {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(env.Patience, nameTime))
	defer cancel()
	most := nameLooks
	_ = env.Root.Lend(ctx, func() {
		for dirs := []string{env.Worktree}; found == "" && len(dirs) > 0 && most > 0 && ctx.Err() == nil; dirs = dirs[1:] {
			in := strings.TrimSuffix(dirs[0], "/")
			_ = env.Root.ReadDir(ctx, dirs[0], func(e root.Entry) bool {
				most--
				switch at := in + "/" + e.Name; {
				case e.Kind != root.KindDir && e.Kind != root.KindFile, hidden.hidesName(at), slices.Contains(repositories, e.Name):
				case e.Name == name:
					found = at
				case e.Kind == root.KindDir:
					dirs = append(dirs, at)
				}
				return most > 0 && found == ""
			})
		}
	})
	return found, found == "" && (most <= 0 || ctx.Err() != nil)
}

// unsearched says that the search for a name has ended before all were looked at.
func unsearched(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return fmt.Sprintf(", of which the first %d entries were searched for the name: glob **/%s looks at all", nameLooks, plain.Name(name))
}

// elsewhere goes on with the file of the worktree that has the last name of a missing path.
func elsewhere(ctx context.Context, env *Env, path string) string {
	switch found, ended := sameName(ctx, env, path); {
	case found != "":
		return ". There is " + plain.Name(found)
	case ended:
		return ". It may be deeper in the worktree" + unsearched(path)
	}
	return ""
}

// similarNames gives the names in a directory that are most like name. What no file
// tool opens is none of them.
func similarNames(ctx context.Context, env *Env, dir, name string) (near nearNames, err error) {
	type scored struct {
		name  string
		score int
	}
	var found []scored
	seen := 0
	lower, form := strings.ToLower(name), norm.NFC.String(name)
	hidden, err := unreadOf(env)
	if err != nil {
		return near, err
	}
	err = env.Root.ReadDir(ctx, dir, func(e root.Entry) bool {
		seen++
		switch e.Kind {
		case root.KindSocket, root.KindFIFO, root.KindDevice:
			return true
		}
		if hidden.hidesName(dir + e.Name) {
			return true
		}
		if e.Name != name && norm.NFC.String(e.Name) == form {
			near.same = e.Name
			return false
		}
		if score, ok := unlikeness(lower, strings.ToLower(e.Name)); ok {
			found = append(found, scored{e.Name, score})
		}
		return seen < siblingsSeen && len(found) <= 1000
	})
	slices.SortFunc(found, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.name, b.name))
	})
	for _, f := range found[:min(len(found), siblings)] {
		near.names = append(near.names, f.name)
	}
	return near, err
}

// unlikeness is how far name is from other; false when they are not alike. One that
// contains the other, such as a name without its extension, is.
func unlikeness(name, other string) (int, bool) {
	short, long := min(len(name), len(other)), max(len(name), len(other))
	if short >= 3 && (strings.Contains(name, other) || strings.Contains(other, name)) {
		return long - short, true
	}
	return plain.Alike(name, other)
}

func isBelow(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
