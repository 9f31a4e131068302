package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

const callLong = `Call a tool in a session and print its output.

The input is a JSON object: as an argument, from a file with @FILE, or from
standard input with "-". "toolctl tools" shows which fields each tool takes. Input
that does not begin with "{" is plain text, for tools that need only one string:
the command of bash, the path of read and list, the pattern of glob and grep.
"toolctl exec SESSION -- COMMAND" runs a command word by word.

With -i the command of bash reads the standard input of toolctl. Without -i it has
no input, and toolctl exits with 125 if there was some.

"call SESSION bash" exits with the command's own code (124 after a timeout, 125
when toold itself failed, 126 when it was denied, 128+n for a signal). The other
tools exit with 0, or with 1 when the tool ran and failed, or with 3 when the
call was denied. A call that needs approval waits for it; standard error says how
to answer.

Ctrl-C aborts the call, unless it has a name (--id). A named call goes on: the same
command again waits for it and shows its result, without a second run.`

const callExample = `  toolctl call review bash 'make test' --stream
  toolctl call review read main.go
  toolctl call review grep '{"pattern": "TODO", "include": "*.go"}'
  toolctl call review edit @edit.json
  echo 'make | tail' | toolctl call review bash -
  toolctl call review bash '{"command": "make"}' --id build-1 --wait 0`

// maxInput is how much the daemon takes in one request.
const maxInput = 16 << 20

type callCommand struct {
	*app
	stream, pass  bool
	id            string
	timeout, wait string
}

func newCallCommand(a *app) *cobra.Command {
	s := &callCommand{app: a}
	c := &cobra.Command{
		Use:               "call SESSION TOOL [JSON | TEXT | @FILE | -]",
		Short:             "Call a tool in a session",
		Long:              callLong,
		Example:           callExample,
		Args:              callArgs,
		ValidArgsFunction: inOrder(a.sessions, a.tools),
		RunE:              func(c *cobra.Command, args []string) error { return s.run(c.Context(), args) },
	}
	f := c.Flags()
	f.BoolVar(&s.stream, "stream", false, "print the output while the tool runs; with -o json every event, one a line")
	f.BoolVarP(&s.pass, "stdin", "i", false, "give standard input to the command of bash: text, up to 1 MiB")
	f.StringVar(&s.id, "id", "", "your own name for this call; the same name again never runs it twice")
	f.StringVar(&s.timeout, "timeout", "", "stop the call after this `duration`, such as 90s")
	f.StringVar(&s.wait, "wait", "", "wait for the result no longer than this `duration`; the call goes on; 0 does not wait")
	return c
}

func (s *callCommand) run(ctx context.Context, args []string) error {
	piped := len(args) == 3 && args[2] == "-" // the input of the tool itself
	if s.pass && (args[1] != "bash" || piped) {
		return usagef("-i is for a command of bash, whose input is then an argument or @FILE")
	}
	if _, err := sessionRef(args[0]); err != nil {
		return err
	}
	c := s.client()
	req, err := s.request(ctx, c, args)
	if err != nil {
		return err
	}
	reads := req.Tool == "bash" && !piped
	if reads {
		if req.Input, err = s.given(ctx, s.pass, req.Input); err != nil {
			return commandFailure(err)
		}
	}
	err = s.withSession(ctx, c, args[0], func(ref string) error { return s.call(ctx, c, ref, req) })
	if reads {
		err = s.notGiven(ctx, s.pass, err)
	}
	if req.Tool == "bash" && err != nil && exitCode(err) != exitUsage {
		err = commandFailure(err)
	}
	return err
}

func (s *callCommand) call(ctx context.Context, c *client.Client, session string, req client.CallCreate) error {
	if s.stream {
		return s.streamed(ctx, c, session, req)
	}
	call, err := s.waited(ctx, c, session, req)
	if err != nil {
		return err
	}
	if err := s.printCall(ctx, c, call); err != nil {
		return err
	}
	return s.result(ctx, call)
}

func (s *callCommand) request(ctx context.Context, c *client.Client, args []string) (client.CallCreate, error) {
	req := client.CallCreate{Tool: args[1], Key: s.id, Typed: s.typed()}
	if s.stream && s.wait != "" {
		return req, usagef("--stream shows all of the call: leave --wait out")
	}
	arg := "{}"
	if len(args) == 3 {
		arg = args[2]
	}
	var err error
	if req.TimeoutMillis, err = millis("--timeout", s.timeout); err != nil {
		return req, err
	}
	if s.wait != "" {
		d, err := parseDurationFlag("--wait", s.wait)
		if err != nil {
			return req, err
		}
		if d < 0 {
			return req, usagef("--wait %s: it must not be negative", s.wait)
		}
		ms := time.Duration(d).Milliseconds()
		req.WaitMillis = &ms
	}
	req.Input, err = s.input(ctx, c, req.Tool, arg)
	return req, err
}

// input reads the tool's input: JSON, which is for the daemon to judge, or the text of
// the tool's main field.
func (s *callCommand) input(ctx context.Context, c *client.Client, tool, arg string) (json.RawMessage, error) {
	b := []byte(arg)
	from := "the input"
	if file, ok := strings.CutPrefix(arg, "@"); ok || arg == "-" {
		from = arg
		var err error
		if b, err = s.readInput(arg, file); err != nil {
			return nil, err
		}
	}
	switch {
	case len(bytes.TrimSpace(b)) == 0:
		return nil, usagef("%s is empty: write a JSON object, or the text of the tool's main field", from)
	case !bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")):
		return askedInput(ctx, c, tool, string(b))
	case !json.Valid(b):
		var v any
		return nil, usagef("%s is not JSON: %w; write an object, such as '{\"command\": \"ls\"}'", from, json.Unmarshal(b, &v))
	}
	return b, nil
}

// callArgs says what to do with a command that was not quoted.
func callArgs(_ *cobra.Command, args []string) error {
	if len(args) > 3 {
		return fmt.Errorf("the input is one argument: quote it, or write toolctl exec %s -- COMMAND", line(args[0]))
	}
	return nil
}

func (s *callCommand) readInput(arg, file string) ([]byte, error) {
	r := s.stdin
	if arg != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, usageError(err)
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", arg, err)
	}
	if len(b) > maxInput {
		return nil, usagef("%s has more than %d bytes, the most that a call takes", arg, maxInput)
	}
	return bytes.TrimSpace(b), nil
}

// waited makes the call and waits for its answer.
func (s *callCommand) waited(ctx context.Context, c *client.Client, session string, req client.CallCreate) (*client.Call, error) {
	if req.WaitMillis != nil {
		return c.CreateCall(ctx, session, req, client.CallOptions{})
	}
	k := s.asker(c)
	defer k.stop()
	progress := s.progress(line(req.Tool) + " is running")
	f := follower{client: c, detach: s.id != "", onEvent: func(client.Event) error { return nil }, approval: func(ctx context.Context, e client.Event) {
		progress.stop()
		if k.event(ctx, e); k.prompting() {
			progress = newProgress("") // the terminal has the prompt
		} else {
			progress = s.progress("waiting for the call")
		}
	}}
	call, err := f.run(ctx, session, req)
	progress.stop()
	return call, err
}

func (s *callCommand) asker(c *client.Client) *asker {
	k := &asker{app: s.app, client: c, giveUp: "Ctrl-C aborts the call"}
	if s.id != "" {
		k.giveUp = "Ctrl-C leaves it waiting"
	}
	return k
}

func (s *callCommand) streamed(ctx context.Context, c *client.Client, session string, req client.CallCreate) error {
	f := s.outputs(c)
	if s.format == formatJSON {
		f = &follower{client: c, onEvent: s.printEvent}
	}
	k := s.asker(c)
	defer k.stop()
	f.detach, f.approval = s.id != "", k.event
	call, err := f.run(ctx, session, req)
	if err != nil {
		return err
	}
	switch {
	case s.format == formatJSON:
	case f.wrote:
		sayRemarks(s.app, call)
	default: // a tool that does not stream, or printed nothing: the text has all of it
		if err := s.printCall(ctx, c, call); err != nil {
			return err
		}
	}
	return s.result(ctx, call)
}

// printEvent prints one event of the call's own stream; such events have neither
// an id nor a time.
func (s *callCommand) printEvent(e client.Event) error {
	return printJSONLine(s.stdout, struct {
		Type string          `json:"type"`
		Call string          `json:"call_id"`
		Data json.RawMessage `json:"data"`
	}{e.Type, e.Call, e.Data})
}

// printCall prints a call: its output for people, all of it for programs.
func (s *callCommand) printCall(ctx context.Context, cl *client.Client, c *client.Call) error {
	return s.print(view{data: c, names: []string{c.ID}, text: func(to io.Writer) {
		if !c.Finished() {
			if p := c.Permission; p != nil && p.ApprovalID != "" && c.Status == client.CallPending {
				sayPending(ctx, s.app, cl, c)
				return
			}
			s.say("%s is %s; \"toolctl session logs %s %s --follow\" shows its output", line(c.ID), line(string(c.Status)), line(c.SessionID), line(c.ID))
			return
		}
		w := sandboxOut(to, s.outTTY)
		text := c.Printed() // result shows the error
		_, _ = io.WriteString(w, text)
		if text != "" && !strings.HasSuffix(text, "\n") {
			_, _ = io.WriteString(w, "\n")
		}
		_ = w.Flush()
	}})
}

// result is how toolctl exits after a call.
func (s *callCommand) result(ctx context.Context, c *client.Call) error {
	switch {
	case !c.Finished() && s.wait == "0":
		return nil
	case !c.Finished():
		return exit(exitTimeout)
	case c.Error != nil && c.Error.Code == client.CodeInvalidInput:
		return c.Error
	case c.Tool == "bash":
		return commandResult(ctx, c)
	case c.Status == client.CallError && c.Error != nil:
		return c.Error
	case c.Status == client.CallError:
		return errNoReason
	case c.IsError:
		return exit(exitFailed)
	}
	return nil
}
