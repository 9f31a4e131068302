package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/shipped"
)

// agentTrial are the flags of a trial of an agent.
type agentTrial struct {
	name, program, patience string
}

func (f *agentTrial) register(c *cobra.Command) {
	fs := c.Flags()
	fs.Var(choice[string]{&f.name, shipped.Names(), "agent"}, "doctor", "try one of "+strings.Join(shipped.Names(), ", ")+" as it is installed here, and show what its model receives")
	fs.StringVar(&f.program, "program", "", "the agent's program for --doctor, a `path` (default: found in PATH)")
	fs.StringVar(&f.patience, "patience", "", "how long --doctor waits for the agent's next question, a `duration` (default 3m)")
	_ = c.RegisterFlagCompletionFunc("doctor", cobra.FixedCompletions(shipped.Names(), cobra.ShellCompDirectiveNoFileComp))
	_ = c.MarkFlagFilename("program")
}

// defaultPatience is more than an agent takes to start on a machine that is busy.
const defaultPatience = 3 * time.Minute

// notTried are flags that a trial has no use for: its session is its own, with an empty worktree.
var notTried = []string{"session", "name", "worktree", "mode", "target", "project", "wait", "apply", "discard", "patch", "report", "artifact", "print-config", "install", "token"}

// wanted reports whether an agent is to be tried, and finds it. Errors are of usage, or that there is none.
func (f *agentTrial) wanted(c *cobra.Command) (*shipped.Trial, error) {
	if f.name == "" {
		if f.program != "" || f.patience != "" {
			return nil, usagef("--program and --patience are of --doctor AGENT: add it, or leave them out")
		}
		return nil, nil
	}
	for _, name := range notTried {
		if flag := c.Flags().Lookup(name); flag != nil && flag.Changed {
			return nil, usagef("--%s: --doctor has a session of its own, with an empty worktree: leave --%s out", name, name)
		}
	}
	d, err := parseDurationFlag("--patience", f.patience)
	if err == nil && (d < 0 || d == 0 && f.patience != "") {
		err = usagef("--patience %s: write a time such as 3m", f.patience)
	}
	if err != nil {
		return nil, err
	}
	t := &shipped.Trial{Agent: shipped.Named(f.name), Patience: cmp.Or(time.Duration(d), defaultPatience)}
	t.Program, err = f.find(t.Agent)
	return t, err
}

// find gives the path of the agent's program.
func (f *agentTrial) find(agent *shipped.Agent) (string, error) {
	found, err := exec.LookPath(cmp.Or(f.program, agent.Name))
	switch {
	case err == nil:
		return filepath.Abs(found)
	case f.program == "":
		return "", &missingError{
			fmt.Sprintf("there is no %s in PATH", agent.Name),
			fmt.Sprintf("install it (npm install -g %s), or name its program with --program PATH", agent.Package),
		}
	}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err // without the name
	}
	return "", usagef("--program %s: %w; name the agent's program", line(f.program), err)
}

// try does the trial and shows what was seen.
func (f *agentTrial) try(ctx context.Context, a *app, t *shipped.Trial) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find toolctl itself: %w", err)
	}
	progress := a.progress("beginning")
	t.Keeper, t.Getenv, t.Progress = []string{self, "keep-agent"}, a.getenv, func(what string) { progress.set(line(what)) }
	r, err := t.Do(ctx)
	progress.stop()
	if err != nil {
		return err
	}
	return printTrial(a, r)
}

func printTrial(a *app, r *shipped.Report) error {
	var names []string
	failed := false
	for _, c := range r.Checks {
		names = append(names, c.Name)
		failed = failed || c.Status == client.CheckFail
	}
	err := a.print(view{data: r, names: names, text: func(w io.Writer) {
		t := a.newTable("nothing was looked at", "CHECK", "STATUS", "SEEN")
		t.wraps = true
		for _, c := range r.Checks {
			t.row(c.Name, string(c.Status), c.Detail)
			t.paint(1, wordColor(c.Status))
		}
		t.write(w)
	}})
	if err != nil {
		return err
	}
	for _, c := range r.Checks {
		if c.Hint != "" {
			a.say("%s: %s", line(c.Name), line(c.Hint))
		}
	}
	if failed {
		return exit(exitFailed)
	}
	return nil
}
