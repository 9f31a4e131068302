package shipped

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Trial is an agent that is tried with a server of toold's. All fields are required.
type Trial struct {
	Agent *Agent
	// Program is what is started.
	Program string
	// Server starts the server, and Keeper a program that calls Keep.
	Server, Keeper []string
	// Install writes what "toolctl mcp --install" does, with the server in it, below a home of these
	// variables; what the agent looks for where it works, into dir.
	Install func(getenv func(string) string, dir string) error
	// Lacks is what of that is not in the user's own configuration.
	Lacks func() []string
	// Getenv gives the variables of now.
	Getenv func(string) string
	// Patience is how long the agent may ask nothing.
	Patience time.Duration
	// Progress is told what is waited for. It may be called from any goroutine.
	Progress func(what string)

	want served
	seen seen
}

// Do has the agent ask a scripted model until that has made all calls of Probes, or the agent has
// ended, or has been silent for too long. It is an error that the agent has asked nothing. Nothing
// is left of the agent then, and of what it has started. A Trial is done once.
func (t *Trial) Do(ctx context.Context) (r *Report, err error) {
	t.Progress("starting the server without " + t.Agent.Name)
	if t.want, err = t.served(ctx); err != nil {
		return nil, err
	}
	kept, err := StartKeeper(t.Keeper...)
	if err != nil {
		return nil, err
	}
	defer kept.End()
	heard, done := make(chan struct{}, 1), make(chan struct{})
	model, err := NewModel(t.script(kept.Home, heard, done))
	if err != nil {
		return nil, err
	}
	defer model.Close()
	run := &Run{Agent: t.Agent, Program: t.Program, Home: kept.Home, Model: model.URL}
	if err := t.configure(run); err != nil {
		return nil, err
	}
	t.Progress("waiting for " + t.Agent.Name)
	if err := kept.Start(run.Argv(), run.Env(t.Getenv)); err != nil {
		return nil, err
	}
	how, err := t.wait(ctx, kept, model, heard, done)
	if err != nil {
		return nil, err
	}
	kept.End()
	t.seen.end(how, kept.Said(), model)
	if model.Questions() == 0 {
		return nil, t.askedNothing()
	}
	return t.report(), nil
}

// wait waits for the end, and says how the agent has ended.
func (t *Trial) wait(ctx context.Context, kept *Kept, model *Model, heard, done <-chan struct{}) (how string, err error) {
	silent := time.NewTimer(t.Patience)
	defer silent.Stop()
	for {
		select {
		case <-heard:
			silent.Reset(t.Patience)
			t.Progress(fmt.Sprintf("%s makes call %d of %d", t.Agent.Name, min(model.Steps(), len(Probes)), len(Probes)))
		case <-done:
			return "made all calls", nil
		case <-kept.Ended():
			return kept.How(), nil
		case <-silent.C:
			return fmt.Sprintf("asked nothing for %s, and was stopped", t.Patience), nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// askedNothing is the error of an agent that never asked its model for a call.
func (t *Trial) askedNothing() error {
	said := "it said nothing"
	if t.seen.said != "" {
		said = "it said:\n" + t.seen.said
	}
	next := fmt.Sprintf("see that %s starts by itself, and update it (npm install -g %s)", t.Program, t.Agent.Package)
	if strings.HasPrefix(t.seen.how, "asked") {
		next += "; on a slow machine give it longer: --patience 10m"
	}
	if t.seen.others > 0 {
		next = fmt.Sprintf("it asked without offering any tool: update it (npm install -g %s)", t.Agent.Package)
	}
	return fmt.Errorf("%s %s, before it asked its model for a call\n  %s\n  %s", t.Agent.Name, t.seen.how, next, said)
}

// configure writes the agent's configuration, with the server in it.
func (t *Trial) configure(run *Run) error {
	if err := run.Configure(); err != nil {
		return err
	}
	err := t.Install(func(name string) string {
		for _, v := range slices.Backward(run.Env(t.Getenv)) {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}, run.Home)
	if err != nil {
		return fmt.Errorf("configure %s: %w", t.Agent.Name, err)
	}
	return nil
}

// script has the model make the calls of Probes.
func (t *Trial) script(home string, heard, done chan<- struct{}) Script {
	s := Script{Tool: t.Agent.Tool, Offered: true, Heard: func(q *Question) {
		t.seen.question(q)
		select {
		case heard <- struct{}{}:
		default: // the last one is not seen yet
		}
	}}
	for i := range Probes {
		p := &Probes[i]
		s.Steps = append(s.Steps, Step{Tool: p.Tool, Input: p.Input, Saw: func(q *Question, result string) {
			t.seen.result(p, t.want.wrote[i], result, q, home)
			if i == len(Probes)-1 {
				close(done)
			}
		}})
	}
	return s
}
