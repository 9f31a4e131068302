// Package shell says what a bash command would run and touch, from its text
// alone: each simple command in it, the files that its redirections write, the
// paths that its arguments name. A text that does not decide this is opaque.
//
// The scan is the ground on which permission rules stand, so it errs on one
// side only: whatever bash runs is either listed, or the whole text is opaque.
// Where its parser and the shell that runs it could read a text in two ways, the
// text is opaque.
// It is no wall: what a listed program then does by itself (a script, a
// Makefile, an awk program) is the sandbox's affair.
//
// Everything here is pure, bounded, and safe for use by many goroutines.
package shell

import (
	"path"

	"mvdan.cc/sh/v3/syntax"
)

// Bounds of a scan. What is above them is opaque.
const (
	// maxText is the longest text that is parsed, in bytes: what the kernel
	// takes as one argument, so nothing longer can be run.
	maxText = 128 << 10
	// maxCommands bounds Result.Commands.
	maxCommands = 10_000
	// maxPaths bounds Result.Writes and Result.Paths together.
	maxPaths = 250
	// maxLevels bounds substitutions in substitutions.
	maxLevels = 64
	// maxDepth bounds scripts in scripts and wrappers of wrappers.
	maxDepth = 16
	// maxTwice bounds the scripts that are read in two ways, of which each doubles
	// the readings of those inside of it.
	maxTwice = 500
)

// Options is what a scan must know besides the text.
type Options struct {
	// Workdir is where the command starts, as the call says it; "" where it says
	// nothing. Names in the Result stay relative to it.
	Workdir string
	// Home is what "~" stands for; "" makes such paths unresolvable.
	Home string
	// Astray: cd may lead to another directory than its argument says, as in a text that sets CDPATH.
	Astray bool
	// Shell is the shell that reads the command: its name or path, and its
	// options. None is bash.
	Shell []string
}

// Result is what a command would run and touch.
type Result struct {
	// Commands are all simple commands, at any depth.
	Commands []Command
	// Writes are the targets of output redirections.
	Writes []Path
	// Paths are arguments that name files, and what input redirections read.
	Paths []Path
	// Links are arguments that do not look like paths, and values of options, which a program may take for files: such
	// a word matters where there is a link of this name that leads elsewhere.
	Links []Link
	// Opaque: the lists may lack something, for the reason Why, which is a
	// clause such as "eval runs text that is made at run time".
	Opaque bool
	Why    string
}

// Command is one simple command.
type Command struct {
	// Text is the command as it is written, with its assignments and
	// redirections. A command that is written in an unusual way (quotes or
	// escapes where none are needed, more than one space, a redirection in
	// front, by the path of a system program) is listed a second time in its
	// plain form, and "git -C x push" also as "git push", so that no rule is
	// evaded by spelling.
	Text string
	// Save is the pattern that an approval for always would save, such as
	// "git checkout *"; "" where none should be offered.
	Save string
	// Also are other readings of it, with NULs between: the same command without options before
	// its kind, and with variables that are set for it, or for what runs it. A rule that denies one of them is about it; none that allows one is.
	Also string
	// Prefixed: Text is in plain form and begins with variables that are harmless, and the form without them
	// is listed too, which says what it does, with those as its Variables.
	Prefixed  bool
	Variables string
	// Wraps: all that it does is to run others, which are listed too. A rule for everything is about those alone.
	Wraps bool
	// Dir is where it runs, absolute or relative to where the text starts: "" is that place.
	Dir string
	// Apart: it may run in more places than one or be given input by another part of the text, so
	// a yes to the line by itself is none to this one.
	Apart bool
	// Program has the files that it runs by their paths, with Text in plain form; nil where
	// the text has none.
	Program *Program
}

// same reports whether c and d are the same.
func (c Command) same(d Command) bool {
	if p, q := c.Program, d.Program; p != nil && q != nil {
		if !p.same(q) {
			return false
		}
		c.Program, d.Program = nil, nil // they are of the same text
	}
	return c == d
}

// Path is a file that a command names.
type Path struct {
	Text string // as it is written
	// Name is the path: absolute, or relative to where the command starts; ""
	// where the text does not decide it.
	Name string
	// Weak: the text does not speak of it. A program that is given its arguments by another one or by a file, or
	// follows links in a directory, may come to it; with Matched, by a link whose name is one of those that a wildcard finds.
	Weak, Matched bool
}

// Link is a word that may be the name of a link, as it is written, and the path as Path has it.
type Link struct{ Text, Name string }

// maxMade is how many commands of a text there is room for from the beginning.
const maxMade = 64

// Scan scans a command.
func Scan(command string, o Options) Result {
	r, astray := scan(command, o)
	if astray && (!o.Astray || o.Home != "") {
		// That may be in a loop or run later, and so is about what stands in front of it too.
		o.Home, o.Astray = "", true
		r, _ = scan(command, o)
	}
	return r
}

// scan is one Scan. It says whether the text itself sets what o.Home and o.Astray are about.
func scan(command string, o Options) (r Result, astray bool) {
	c := &scanner{findings: findings{&Result{Commands: make([]Command, 0, min(2+len(command)/24, maxMade))}, &facts{}}, home: o.Home, workdir: o.Workdir, astray: o.Astray, scope: &scope{}}
	name := "bash"
	if len(o.Shell) > 0 {
		name = path.Base(o.Shell[0])
		for _, option := range o.Shell[1:] {
			c.shellOption(name, word{text: option, value: option})
		}
	}
	c.read(name, command, startDirs())
	c.conclude()
	if len(c.out.Commands) == 0 {
		c.opaque("%s", whyNothing)
	}
	return *c.out, c.facts.astray
}

// whyNothing is why a text is opaque that has no simple command.
const whyNothing = "it runs no program that could be named"

// scanner walks a text and gathers what it finds. One is made for each text, and one
// for each script inside of it.
type scanner struct {
	findings

	home, workdir string
	astray        bool     // cd may lead to another directory than its argument says
	posix         bool     // the text is read as a POSIX shell reads it, not as bash
	level         int      // of substitutions and subshells
	depth         int      // of scripts and wrappers
	fed           int      // parts around it that are given input
	scratch       []byte   // for plain forms
	sets          []string // call.sets of what runs this script
	scope         *scope

	src string // what positions refer to
	// within is the offset at which the innermost substitution ends; 0 = none.
	within uint
	// whole is the offset at which the outermost substitution ends; 0 = none.
	whole uint
	// moving are the loops in which the directory may change.
	moving map[syntax.Node]bool
	// heredocLines are the lines on which a here-document was begun.
	heredocLines map[uint]bool
}

// inner is a scanner for a script inside of c's text.
func (c *scanner) inner() *scanner {
	return &scanner{
		findings: c.findings, home: c.home, workdir: c.workdir, astray: c.astray, posix: c.posix, level: c.level, depth: c.depth + 1, fed: c.fed, scope: &scope{around: c.scope},
	}
}
