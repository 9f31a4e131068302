package run

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
)

// ripgrepArgs are given to every run of ripgrep. No configuration is read, so
// that neither a file of the worktree nor a variable can add a flag (--pre runs
// a program). Git's rules for what to ignore hold also where there is no .git:
// a worktree may be a part of a repository or a copy without its history, and
// node_modules is no more wanted there. The user's global ignore file is left
// out: home is not the user's here. Files are read and not mapped, because one
// that shrinks under a mapping kills ripgrep, and a mapped one counts as memory.
var ripgrepArgs = []string{
	"--no-config", "--no-pre", "--no-messages", "--no-mmap", "--color=never",
	"--no-ignore-global", "--hidden",
}

// RipgrepIn is how the ripgrep in dir is started: by itself, or by the loader that lies
// beside it with its libraries.
func RipgrepIn(dir string) []string {
	rg, loader := filepath.Join(dir, "rg"), filepath.Join(dir, "ld.so")
	if _, err := os.Stat(loader); err != nil {
		return []string{rg}
	}
	return []string{loader, "--library-path", dir, rg}
}

// withoutGit leaves out what git keeps for itself.
const withoutGit = "--glob=!.git"

// outsideGit has ripgrep follow .gitignore files where there is no repository. It is
// not given in one: from ripgrep 14 on the rules would then go on in a repository
// within it, which they do not in git.
const outsideGit = "--no-require-git"

// inGit reports whether dir is in a git repository, as ripgrep sees it: there is a
// .git of any kind in it or above it.
func inGit(ctx context.Context, r *root.Root, dir string) (is bool) {
	_ = r.Lend(ctx, func() { // whose error is that ctx has ended
		for ; ; dir = path.Dir(dir) {
			info, err := r.Resolve(ctx, path.Join(dir, ".git"))
			if is = err == nil && info.Exists; is || dir == "/" {
				return
			}
		}
	})
	return is
}

// ripgrepRun is one run of ripgrep.
type ripgrepRun struct {
	args    []string // after ripgrepArgs; without the path
	place   place
	out     *splitter
	timeout time.Duration
	all     bool // no ignore file counts, and .git is searched
	small   bool // there is little to search
}

// run feeds ripgrep's output to r.out until it ends, its time is up, or r.out
// has what it wants.
func (r *ripgrepRun) run(ctx context.Context, env *Env) (searchEnd, error) {
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.out.enough = cancel
	stderr := &bounded{most: 4 << 10}
	args := slices.Clone(ripgrepArgs)
	switch {
	case r.all:
		args = append(args, "--no-ignore")
	case !inGit(ctx, env.Root, r.place.dir):
		args = append(args, withoutGit, outsideGit)
	default:
		args = append(args, withoutGit)
	}
	if r.small {
		args = append(args, "--threads=1") // more take longer to start than it takes
	}
	exit, err := env.Exec(runCtx, Command{
		Argv:    slices.Concat(env.Ripgrep, args, r.args, []string{"--", r.place.arg}),
		Dir:     r.place.dir,
		Env:     []string{"RIPGREP_CONFIG_PATH="},
		Stdout:  r.out,
		Stderr:  stderr,
		Timeout: r.timeout,
	})
	switch {
	case r.out.done: // however it ended, the answer is complete
		return searchEnd{}, nil
	case ctx.Err() != nil:
		return cancelled(ctx)
	case err != nil && strings.HasPrefix(err.Error(), "working directory "):
		return searchEnd{}, placeError(r.place.dir, err)
	case err != nil:
		return searchEnd{}, fmt.Errorf("run ripgrep: %w", err)
	}
	return endOf(exit, plain.Text(stderr.b.String()), r.timeout), nil
}

// endOf reads ripgrep's exit status: 0 found, 1 nothing found, 2 an error, which
// with --no-messages says nothing when it is only about some files.
func endOf(exit *Exit, stderr string, timeout time.Duration) searchEnd {
	switch {
	case exit.Reason == ReasonTimeout:
		return timedOut(timeout)
	case exit.Reason != ReasonExit:
		return searchEnd{partial: strings.TrimSpace(fmt.Sprintf("ripgrep was ended from outside (%s %s)", exit.Reason, exit.Signal))}
	case exit.Code <= 1:
		return searchEnd{}
	case stderr != "":
		return searchEnd{fatal: strings.TrimPrefix(strings.TrimSpace(stderr), "rg: ")}
	default:
		return searchEnd{unreadable: exit.Code == 2}
	}
}

// splitter cuts ripgrep's output into records as it streams by. A record is a
// fixed row of fields, each with its own end byte and bound; what goes past the
// bound is dropped, so that no file can make it grow.
type splitter struct {
	fields []splitField
	// visit gets each record; the slices are valid until it returns. False says
	// that no more is needed.
	visit func(fields [][]byte) bool
	// enough is called once when visit returned false.
	enough func()

	at    int  // field that is being read
	begun bool // something of it has come
	drop  int  // bytes of it that are still to be dropped
	done  bool
	bytes [][]byte
}

type splitField struct {
	end  byte
	keep int // bytes
	// only is what the field begins with; where something else comes it is not there.
	// 0 = it always is.
	only byte
	// stop ends the record too: what came is the last field then, without its first
	// byte, and of this one only that byte is left. 0 = nothing does.
	stop byte
	// drop says how many bytes of the field come before those that are kept, by the
	// fields before it; nil = none.
	drop func(fields [][]byte) int
}

// Write implements io.Writer. It never fails: after the end of the search it
// swallows what still comes.
func (s *splitter) Write(p []byte) (int, error) {
	n := len(p)
	if s.bytes == nil {
		s.bytes = make([][]byte, len(s.fields))
	}
	for len(p) > 0 && !s.done {
		field := s.fields[s.at]
		if !s.begun {
			if s.begun, s.drop = true, 0; field.drop != nil {
				s.drop = field.drop(s.bytes)
			}
			if field.only != 0 && p[0] != field.only {
				s.next()
				continue
			}
		}
		end := bytes.IndexByte(p, field.end)
		if field.stop != 0 {
			end = bytes.IndexFunc(p, func(r rune) bool { return r == rune(field.end) || r == rune(field.stop) })
		}
		part := p
		if end >= 0 {
			part = p[:end]
		}
		dropped := min(s.drop, len(part))
		part, s.drop = part[dropped:], s.drop-dropped
		s.bytes[s.at] = append(s.bytes[s.at], part[:min(len(part), field.keep-len(s.bytes[s.at]))]...)
		if end < 0 {
			break
		}
		stopped := field.stop != 0 && p[end] == field.stop
		p = p[end+1:]
		if stopped {
			s.stopHere()
		}
		s.next()
	}
	return n, nil
}

// stopHere makes what has come of a field the last one.
func (s *splitter) stopHere() {
	field := s.bytes[s.at]
	s.at = len(s.fields) - 1
	s.bytes[s.at] = append(s.bytes[s.at], field[1:]...)
	s.bytes[s.at-1] = field[:1]
}

// next ends a field, and with the last one the record.
func (s *splitter) next() {
	s.begun = false
	if s.at++; s.at == len(s.fields) {
		s.record()
	}
}

func (s *splitter) record() {
	if !s.visit(s.bytes) {
		s.done = true
		s.enough()
	}
	s.at = 0
	for i := range s.bytes {
		s.bytes[i] = s.bytes[i][:0]
	}
}

// rest is what came after the last whole record.
func (s *splitter) rest() string {
	if s.bytes == nil || s.at > 0 {
		return ""
	}
	return string(s.bytes[0])
}
