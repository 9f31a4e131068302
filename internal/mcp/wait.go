package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/answer"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/strictjson"
)

// WaitTool is the name of the tool that takes a call further whose answer did not wait for
// its end.
const WaitTool = "wait"

type waitInput struct {
	CallID  string `json:"call_id"`
	Offset  int64  `json:"offset"`
	Seconds int64  `json:"seconds"`
}

func waitTool() *sdk.Tool {
	no := false
	return &sdk.Tool{
		Name: WaitTool,
		Description: "Waits for a call that has not ended yet, and gives its result, or its output so far." +
			" Use it when a tool answered that its call has not ended.",
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"call_id": {"type": "string", "description": "The id of the call, as the answer has it: call_…"},
				"offset": {"type": "integer", "minimum": 0, "description": "Where the output goes on, as the answer has it. The default is its beginning."},
				"seconds": {"type": "integer", "minimum": 1, "description": "How long to wait at most. The default is as long as an answer may take."}
			},
			"required": ["call_id"],
			"additionalProperties": false
		}`),
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no},
	}
}

// wait takes a call further.
func (s *Server) wait(ctx context.Context, req *sdk.CallToolRequest) *sdk.CallToolResult {
	in, err := waitInputOf(req.Params.Arguments)
	if err != nil {
		return failed(err)
	}
	var c *client.Call
	err = s.patiently(ctx, func() (err error) {
		c, err = s.ownCall(ctx, in.CallID)
		return err
	})
	if err != nil {
		return failed(wordAway(err))
	}
	if c.Finished() {
		return s.finished(c)
	}
	wait := s.cfg.Wait
	if in.Seconds > 0 {
		wait = min(wait, time.Duration(in.Seconds)*time.Second)
	}
	w := s.newWatch(req)
	w.call, w.tail.next = *c, in.Offset
	w.asked = s.pendingApproval(ctx, c)
	return w.follow(ctx, func(stream context.Context) iter.Seq2[client.Event, error] {
		return s.cfg.Client.FollowCall(stream, c.ID, in.Offset)
	}, wait)
}

func waitInputOf(args json.RawMessage) (in waitInput, err error) {
	if err = strictjson.Decode(args, &in); err == nil && (in.CallID == "" || in.Offset < 0 || in.Seconds < 0) {
		err = errors.New("call_id is missing, or a number is negative")
	}
	if err != nil {
		return in, fault.Input.Errorf("the input of %s is wrong: %w", WaitTool, err).
			Next(`give it as {"call_id": "call_…", "offset": 0}, as the answer of the call says`)
	}
	return in, nil
}

// ownCall gets a call of this session. Another one's is answered like an unknown one, also
// where the client of this server may see it.
func (s *Server) ownCall(ctx context.Context, id string) (*client.Call, error) {
	c, err := s.cfg.Client.GetCall(ctx, id)
	if err == nil && c.SessionID == s.cfg.Session {
		return c, nil
	}
	if e := answer.Of(err); err == nil || e != nil && e.Code == client.CodeNotFound {
		return nil, fault.NotFound.Errorf("this session has no call %q", id).Next("use the call id of an earlier answer")
	}
	return nil, err
}

// pendingApproval is what a call waits for, as far as this client may see it.
func (s *Server) pendingApproval(ctx context.Context, c *client.Call) *client.Approval {
	if c.Status != client.CallPending {
		return nil
	}
	list, err := s.cfg.Client.ListApprovals(ctx, client.ApprovalQuery{Session: s.cfg.Session, Limit: 100})
	if err != nil {
		return nil // the holder of a token may not list them
	}
	for i := range list.Items {
		if list.Items[i].CallID == c.ID {
			return &list.Items[i]
		}
	}
	return nil
}
