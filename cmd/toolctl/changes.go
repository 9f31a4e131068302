package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toold/toold/client"
)

// changesScript asks git what changed. It runs inside the sandbox, never on the
// host: a repository's own configuration can name programs for git to start.
const changesScript = `git rev-parse --is-inside-work-tree >/dev/null 2>&1 || exit 0
export GIT_OPTIONAL_LOCKS=0 GIT_PAGER=cat
git status --short && git diff --stat HEAD 2>/dev/null; true`

// maxChangeLines bounds what is shown; git says the rest.
const maxChangeLines = 60

// changes is what the command changed in a git worktree, as git says it; "" where it
// cannot be told, which is no failure of the command's.
func changes(ctx context.Context, c *client.Client, session string, timeoutMillis int64) string {
	input, _ := json.Marshal(map[string]string{"command": changesScript}) // strings always marshal
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := follower{
		client: c, onEvent: func(client.Event) error { return nil },
		approval: func(context.Context, client.Event) { cancel() }, // nobody has to allow this
	}
	call, err := f.run(ctx, session, client.CallCreate{Tool: "bash", Input: input, TimeoutMillis: timeoutMillis})
	if err != nil || call.Status != client.CallCompleted || endingOf(call).code != 0 {
		return ""
	}
	return strings.TrimRight(call.Printed(), "\n")
}

// showChanges prints them on standard error.
func showChanges(a *app, changes string) {
	text := lines(changes)
	if text == "" {
		return
	}
	shown := strings.Split(text, "\n")
	more := len(shown) - maxChangeLines
	if more > 0 {
		shown = append(shown[:maxChangeLines], " … and "+plural(more, "line")+" more")
	}
	fmt.Fprintf(a.stderr, "toolctl: git status, from inside the sandbox:\n%s\n", strings.Join(shown, "\n"))
}
