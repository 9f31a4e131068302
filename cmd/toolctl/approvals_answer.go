package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

type approvalsAnswerCommand struct {
	*app
	scope, expires, message, sha256 string
}

func newApprovalsAnswerCommand(a *app) *cobra.Command {
	s := &approvalsAnswerCommand{app: a}
	c := &cobra.Command{
		Use:     "answer APPROVAL once|always|reject",
		Aliases: []string{"reply"},
		Short:   "Answer a pending approval",
		Long: `Answer a pending approval.

"once" lets this call run. "always" also saves a rule, so that calls like it are
not asked about again: in this session, in all sessions of the tenant with this
profile, or in all sessions of the tenant (--scope). "reject" denies the call.
With --message only this call is rejected, and the model gets the message.
Without, all pending calls of the session are rejected.`,
		Example: `  toolctl approvals answer apr_0… once
  toolctl approvals answer apr_0… always --scope tenant --expires 12h
  toolctl approvals answer apr_0… reject --message 'use the merge queue'`,
		ValidArgsFunction: inOrder(a.approvals, func(context.Context, []string) ([]cobra.Completion, error) { return answers, nil }),
		RunE:              func(c *cobra.Command, args []string) error { return s.run(c, args[0], args[1]) },
	}
	f := c.Flags()
	f.StringVar(&s.scope, "scope", "", "for always: "+strings.Join(scopes, ", ")+" (default session)")
	f.StringVar(&s.expires, "expires", "", "for always: end after this `duration`, such as 12h (default as long as the scope lives)")
	f.StringVar(&s.message, "message", "", "for reject: the message for the model")
	f.StringVar(&s.sha256, "sha256", "", "answer only if the input has this SHA-256")
	_ = c.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions(scopes, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (s *approvalsAnswerCommand) run(c *cobra.Command, id, word string) error {
	id, err := approvalRef(id)
	if err != nil {
		return err
	}
	answer, err := s.answer(word)
	if err != nil {
		return err
	}
	cl := s.client()
	list := func() ([]string, error) {
		pending, err := pendingApprovals(c.Context(), cl, client.ApprovalQuery{})
		return namesOf(pending, func(x *client.Approval) string { return x.ID }), err
	}
	var approval *client.Approval
	err = withID(id, "apr_", list, func(id string) (err error) {
		approval, err = cl.AnswerApproval(c.Context(), id, answer)
		return err
	})
	if err != nil {
		return whose(s.app, err, "approval", id, func() ([]client.Approval, error) {
			return pendingApprovals(c.Context(), cl, client.ApprovalQuery{AllTenants: true})
		}, func(x *client.Approval) (string, string) { return x.ID, x.Tenant })
	}
	return s.print(view{data: approval, names: []string{approval.ID}, text: func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s %s\n", line(approval.ID), line(approval.CallID), answered(answer))
		for _, text := range savedTexts(approval.Reply) {
			fmt.Fprintf(w, "  %s\n", text)
		}
	}})
}

// answer checks what was said; the daemon checks it again.
func (s *approvalsAnswerCommand) answer(word string) (client.ApprovalAnswer, error) {
	a := client.ApprovalAnswer{
		Answer: client.Answer(word), Scope: client.Scope(s.scope), Expires: s.expires, Message: s.message, SHA256: s.sha256,
	}
	switch {
	case !slices.Contains(answers, word):
		return a, usagef("%q is not an answer%s; use one of %s", line(word), didYouMean(word, answers), strings.Join(answers, ", "))
	case a.Answer != client.AnswerAlways && (s.scope != "" || s.expires != ""):
		return a, usagef("--scope and --expires are of always: leave them out, or answer always")
	case a.Answer != client.AnswerReject && s.message != "":
		return a, usagef("--message is of reject: leave it out, or answer reject")
	case s.scope != "" && !slices.Contains(scopes, s.scope):
		return a, usagef("no scope %q%s; there are %s", line(s.scope), didYouMean(s.scope, scopes), strings.Join(scopes, ", "))
	}
	if d, err := parseDurationFlag("--expires", s.expires); err != nil {
		return a, err
	} else if s.expires != "" && d <= 0 {
		return a, usagef("--expires %s: it must be in the future", s.expires)
	}
	return a, nil
}

// approvalRef checks the id of an approval that the user gave, so that no other
// text becomes a part of a request's path.
func approvalRef(id string) (string, error) {
	rest, ok := strings.CutPrefix(id, "apr_")
	if !ok || strings.Trim(rest, ".") == "" || strings.ContainsAny(rest, "/%?#") {
		return "", usagef("%q is not the id of an approval; \"toolctl approvals\" shows them", line(id))
	}
	return id, nil
}
