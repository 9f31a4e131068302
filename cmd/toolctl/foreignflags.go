package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// foreignFlag is a flag of docker or kubectl that people know.
type foreignFlag struct {
	flag string // ours, which some commands have; "" for none
	how  string // how ours is written, or what to do without one
}

// foreignFlags are by their names there, long or of one letter.
var foreignFlags = map[string]foreignFlag{
	"v":              {"mount", "--mount SRC:DST, or --worktree DIR for the directory to work on"},
	"volume":         {"mount", "--mount SRC:DST, or --worktree DIR for the directory to work on"},
	"e":              {"env", "--env K=V"},
	"env-file":       {"env", "--env K=V for each line of the file"},
	"m":              {"limit", "--limit memory=2GiB"},
	"memory":         {"limit", "--limit memory=2GiB"},
	"cpus":           {"limit", "--limit cpus=2"},
	"pids-limit":     {"limit", "--limit pids=512"},
	"shm-size":       {"limit", "--limit memory=2GiB, of which /dev/shm is a part"},
	"storage-opt":    {"limit", "--limit disk=4GiB"},
	"tmpfs":          {"limit", "--limit tmp=256MiB, for /tmp"},
	"ulimit":         {"limit", "--limit open_files=4096"},
	"limits":         {"limit", "--limit memory=2GiB"},
	"requests":       {"limit", "--limit memory=2GiB"},
	"network":        {"net", "--net none or --net rules"},
	"l":              {"label", "--label K=V"},
	"labels":         {"label", "--label K=V"},
	"selector":       {"label", "--label K=V"},
	"filter":         {"label", "--label K=V, or --state"},
	"field-selector": {"state", "--state"},
	"cwd":            {"workdir", "--workdir DIR"},
	"w":              {"workdir", "--workdir DIR"},
	"i":              {"stdin", "-i, which gives standard input to the command"},
	"interactive":    {"stdin", "-i, which gives standard input to the command"},
	"n":              {"tenant", "--tenant NAME"},
	"namespace":      {"tenant", "--tenant NAME"},
	"all-namespaces": {"all-tenants", "-A"},
	"a":              {"all", "--all"},
	"context":        {"socket", "--socket PATH"},
	"kubeconfig":     {"socket", "--socket PATH"},
	"host":           {"socket", "--socket PATH"},
	"H":              {"socket", "--socket PATH"},
	"q":              {"output", "-o name"},
	"quiet":          {"output", "-o name"},
	"format":         {"output", "-o json or -o yaml"},
	"no-trunc":       {"output", "-o json: only a terminal gets tables that are cut"},
	"now":            {"force", "--force"},
	"grace-period":   {"force", "--force, which gives no grace"},
	"restart":        {"", "a session stays until it is ended"},
	"rm":             {"", "toolctl run ends its session by itself; --keep leaves it"},
	"d":              {"", "toolctl call SESSION bash LINE --wait 0 leaves a command running"},
	"detach":         {"", "toolctl call SESSION bash LINE --wait 0 leaves a command running"},
	"t":              {"", "commands have no terminal; leave it out"},
	"tty":            {"", "commands have no terminal; leave it out"},
	"it":             {"", "commands have no terminal; write -i for standard input"},
	"u":              {"", "commands run as the session's own user; leave it out"},
	"user":           {"", "commands run as the session's own user; leave it out"},
	"privileged":     {"", "no session has rights on the host; leave it out"},
	"cap-add":        {"", "no session has capabilities; leave it out"},
	"security-opt":   {"", "what holds in sessions is shown by: toolctl doctor"},
	"entrypoint":     {"", "write the whole command after --"},
	"c":              {"", "a session is one sandbox; leave it out"},
	"container":      {"", "a session is one sandbox; leave it out"},
	"p":              {"", "a session's ports cannot be reached from outside"},
	"publish":        {"", "a session's ports cannot be reached from outside"},
	"platform":       {"", "images are of this host's platform; leave it out"},
	"pull":           {"", "toolctl image pull NAME gets an image"},
	"timestamps":     {"", "toolctl session logs SESSION has the time of each call"},
}

// foreignHint says what does here what a flag does elsewhere; "" where that is not known.
func foreignHint(c *cobra.Command, name string) string {
	f, known := foreignFlags[name]
	switch {
	case !known:
		return ""
	case f.flag == "":
		return ": " + f.how
	case c.Flag(f.flag) != nil && f.flag != name:
		return ": write " + f.how
	}
	for _, other := range flagHolders(c.Root()) {
		if other.Flags().Lookup(f.flag) != nil {
			return ": " + other.CommandPath() + " has " + f.how
		}
	}
	return ""
}

// flagHolders are all commands, the ones that foreign flags are mostly about before others.
func flagHolders(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, flagHolders(sub)...)
	}
	last := func(c *cobra.Command) int {
		if slices.Contains([]string{"toolctl session create", "toolctl exec", "toolctl session list"}, c.CommandPath()) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b *cobra.Command) int { return last(a) - last(b) })
	return all
}

// unknownFlag gives the name in what pflag says of a flag that it does not know, with its
// dashes; "" for other errors.
func unknownFlag(err error) (name, shown string) {
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		return name, "--" + name
	}
	if rest, ok := strings.CutPrefix(err.Error(), "unknown shorthand flag: '"); ok {
		name, _, _ = strings.Cut(rest, "'")
		return name, "-" + name
	}
	return "", ""
}
