package mcp

import (
	"context"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// notesEvery is the pause between two notes about a call that says nothing. Clients
	// that count from the last note give up after a minute, some after ten seconds.
	notesEvery = 5 * time.Second
	// notesApart is the pause between two notes about output.
	notesApart = 500 * time.Millisecond
	// maxNote bounds the text of a note that comes from a sandbox, in bytes.
	maxNote = 200
)

// notes are the progress notifications of one request. A client that gave no token gets
// none.
type notes struct {
	session *sdk.ServerSession
	token   any
	begin   time.Time
	last    time.Time
	count   float64
}

func newNotes(req *sdk.CallToolRequest) *notes {
	return &notes{session: req.Session, token: req.Params.GetProgressToken(), begin: time.Now()}
}

// say sends one note. A client that does not take it shows by its connection.
func (n *notes) say(ctx context.Context, text string) {
	if n.token == nil || ctx.Err() != nil {
		return
	}
	n.count++
	n.last = time.Now()
	_ = n.session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: n.token, Progress: n.count, Message: text})
}

// log is for clients that keep a log and show no progress.
func (n *notes) log(ctx context.Context, text string) {
	//nolint:staticcheck // older clients have it, and newer ones do not ask
	_ = n.session.Log(ctx, &sdk.LoggingMessageParams{Level: "notice", Logger: "toold", Data: text})
}

// output tells the last line of the output, at most twice a second.
func (n *notes) output(ctx context.Context, line string) {
	if line != "" && time.Since(n.last) >= notesApart {
		n.say(ctx, line)
	}
}

// beat says that the call goes on, where nothing else did.
func (n *notes) beat(ctx context.Context, what string) {
	if time.Since(n.last) >= notesEvery {
		n.say(ctx, fmt.Sprintf("%s, %d s", what, int(time.Since(n.begin).Seconds())))
	}
}
