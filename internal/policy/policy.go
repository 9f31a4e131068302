// Package policy decides what a call may do: pure functions from rules and
// requests to a verdict, without I/O and without a clock.
//
// A Set has the rules of a configuration. Its Stack for a profile and a tenant
// judges one session:
//
//	list      the built-in defaults, [permission], the profile: the last rule that
//	          matches decides; no match is an ask
//	ceilings  the tenant's rules, the session's, the worktree's: each a list of its
//	          own that can only make the verdict stricter
//	saved     approvals for always: they turn what is still an ask into an allow
//
// To add a built-in rule: defaults.go. To add a profile: profile.go. To add a key
// to rules files: parse.go, and a case in testdata.
package policy

import (
	"github.com/toold/toold/internal/endpoint"
	"github.com/toold/toold/internal/tool"
)

// Action is what a verdict says is to be done.
type Action string

// The actions, from the mildest to the strictest.
const (
	Allow Action = "allow"
	Ask   Action = "ask"
	Deny  Action = "deny"
)

// Permissions that are no tool's. A rule for "*" does not match them.
const (
	PermissionDoomLoop = "doom_loop"
	PermissionExternal = tool.PermissionExternal
)

// Request is one thing that a call wants to do.
type Request struct {
	Permission string `json:"permission"` // e.g. "bash", "edit", "read"
	Pattern    string `json:"pattern"`    // what is shown: the command's text, the path, the URL …
	// Path is set for requests on files: absolute inside the sandbox, resolved.
	// Then rules match it, and Relative, instead of Pattern.
	Path string `json:"path,omitempty"`
	// Relative is Path relative to the worktree; "" outside of it.
	Relative string `json:"relative,omitempty"`
	// Opaque: Pattern is a whole text that cannot be judged by its parts. A rule
	// allows it only when its pattern is that very text, without wildcards, or "*".
	Opaque bool `json:"opaque,omitempty"`
	// Unknown: it is about a file, and which one is only known at run time. It may
	// be any, so every rule that asks or denies is about it; only "*" allows it.
	Unknown bool `json:"unknown,omitempty"`
	// Confined: it is an Unknown path of a session that reaches nothing of a person's beside its
	// worktree, or one in a mount that the only user has asked for, so the built-in line does not ask.
	Confined bool `json:"-"`
	// Weak: an Unknown path that the text does not speak of: a program that follows links, or is given its
	// arguments by another one, may come to it. Where it is Confined no rule asks about it.
	Weak bool `json:"-"`
	// Matched: a Weak one that is never asked about (see shell.Path).
	Matched bool `json:"-"`
	// below, of an Unknown path, is a directory that it lies in; "" for any.
	below string
	// Prefixed: Pattern begins with harmless variables, and the command without them is a request
	// of its own, with them as its Variables. The last line that matches that one with them or
	// without decides; this one is denied where the last line but those for everything denies it.
	Prefixed  bool   `json:"-"`
	Variables string `json:"-"`
	// Wraps: the command does nothing but run others, which are requests of their own. Lines for
	// everything are about those alone; where no other line is about this one, nothing is said of it.
	Wraps bool `json:"-"`
	// Apart: a command that does not run by itself in the worktree's root, so no saved approval of
	// one line is about it.
	Apart bool `json:"-"`
	// Also are other readings of Pattern, with NULs between. Rules that ask or deny are about each
	// of them, those that allow are not.
	Also string `json:"-"`
	// Why says to people why Pattern is Opaque. No verdict depends on it.
	Why string `json:"why,omitempty"`
	// Save is the pattern that an approval for always would allow; "" = none.
	Save string `json:"save,omitempty"`

	// to and http are what is judged of requests for network and http; Connection and HTTP
	// set them.
	to   *endpoint.Endpoint
	http *endpoint.Request
	// within: to is an address that within may lead to, which is what people are asked about.
	within *endpoint.Endpoint
	// dialled: to is an address to dial, which lines with addresses decide. plain: http is read as
	// by a lenient server.
	dialled, plain bool
	// written: it is judged as if requests by https could be read, as [[test]]s of earlier versions
	// have it.
	written bool
}

// SourceDefault is the Rule.Source of what holds without a configuration.
const SourceDefault = "default"

// Rule is one line of a ruleset.
type Rule struct {
	Permission string `json:"permission"`
	Pattern    string `json:"pattern"`
	Action     Action `json:"action"`
	Reason     string `json:"reason,omitempty"`
	// Source says where it stands: "config.toml:12", "default", "profile plan",
	// "session rule 2", "/workspace/.toold/policy.toml:3", "approval apr_…".
	Source string `json:"source"`
}

// Verdict is how a whole call was judged: by the strictest of its requests.
type Verdict struct {
	Action  Action
	Rule    string // Source of the deciding rule
	Pattern string // permission and pattern of the deciding rule, e.g. `bash "git push *"`; "" where none matched
	Reason  string // of the deciding rule
	Request Request
	// Pending are the requests that need an approval, when Action is Ask.
	Pending []Request
}

// Ceiling is a list of rules that can only narrow: no match is no opinion.
type Ceiling struct {
	Name  string // "tenant ci-a", "session", "worktree"
	Rules []Rule
}
