package server

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

// param is one query parameter of a route. Parameters that a route does not
// have, and those that are given twice, are refused: one that is silently
// ignored would be a limit that the client believes in.
type param struct {
	name     string
	kind     kind
	values   []string // the only ones, for kind text; nil for any
	required bool
	many     bool
	most     int // bytes of a text; 0 for maxText
	doc      string
}

// kind is what a parameter's value must look like.
type kind int

const (
	text  kind = iota // up to maxText bytes without control characters
	yesNo             // 1, true, 0 or false
	count             // a number from 0 on
	ident             // the id or the name of a session or a checkpoint
)

// maxText bounds a parameter in bytes; paths are the longest.
const maxText = 4096

// maxPage bounds ?limit=, and maxChanges that of changes: each page of those reads the
// whole tree.
const (
	maxPage    = 1000
	maxChanges = 10_000
)

// tenantName is the parameter of tenantParam.
const tenantName = "tenant"

var (
	afterParam = param{name: "after", kind: text, doc: "next of the previous page"}
	limitParam = param{name: "limit", kind: count, doc: "items per page, at most 1000; 0 or absent means 100"}

	// tenantParam is of lists: what changes something is about one tenant at a time.
	tenantParam = param{name: tenantName, values: []string{"*"}, doc: "of all tenants, for admins; absent means the one that is asked for"}

	toolParams = []param{
		{name: "profile", doc: "only what this profile may see"},
		{name: "session", kind: ident, doc: "only what this session may see"},
		{name: "provider", doc: "only what models of this provider may see"},
		{name: "model", doc: "only what this model may see"},
		{name: "format", values: []string{"anthropic", "openai", "openai-responses", "gemini", "mcp"}, doc: "in the format of this provider"},
		{name: "all", kind: yesNo, doc: "also say which tools are absent, and why"},
	}
	sessionParams = []param{
		{name: "state", values: []string{"creating", "ready", "ending", "ended", "lost"}, doc: "only those in this state"},
		{name: "label", many: true, doc: "only those with this label, key=value; may be repeated, all must match"},
		{name: "all", kind: yesNo, doc: "also those that have ended"},
		afterParam, limitParam, tenantParam,
	}
	endParams = []param{
		{name: "force", kind: yesNo, doc: "running calls get no grace"},
		{name: "keep", kind: yesNo, doc: "keep whole outputs until their retention"},
		{name: "discard", kind: yesNo, doc: "drop the changes of a worktree of mode overlay, also of a session that is over already; without it they are kept until worktree.kept_until"},
	}
	getParams = []param{
		{name: "path", required: true, doc: "absolute, or relative to the worktree"},
		{name: "archive", values: []string{"tar"}, doc: "path is a directory, and the body a tar of what is below it"},
	}
	putParams = append([]param{{name: "mode", doc: "permission bits in octal, default 0644; not for an archive"}}, getParams...)

	diffParams = []param{
		{name: "path", many: true, doc: "only this path of the worktree and what is below it; may be repeated"},
		{name: "exclude", many: true, doc: "leave out, and count, what this pattern as in .gitignore matches; may be repeated"},
		{name: "no_ignored", kind: yesNo, doc: "leave out, and count, what the .gitignore files of the worktree ignore"},
		{name: "against", kind: ident, doc: "name or id of a checkpoint to compare with; absent means the source"},
		{name: "after", kind: text, most: 2 * maxText, doc: "of a list: next of the previous page"}, // a path as base64
		{name: "limit", kind: count, doc: "of a list: changes per page, at most 10000; 0 or absent means 100"},
	}

	callParams = []param{
		{name: "on_disconnect", values: []string{"abort"}, doc: "abort the call if the client disconnects before its end; else it goes on"},
		{name: "streams", values: []string{"split"}, doc: "keep stdout and stderr apart"},
	}
	callListParams = []param{
		{name: "status", values: []string{"pending", "running", "completed", "error"}, doc: "only those of this status"},
		{name: "tool", doc: "only those of this tool"},
		afterParam, limitParam,
	}
	outputParams = []param{
		{name: "offset", kind: count, doc: "first byte to return"},
		{name: "follow", kind: yesNo, doc: "go on until the call has finished"},
		{name: "stream", values: []string{"stdout", "stderr"}, doc: "one of the two, for calls made with streams=split"},
	}
	eventParams = []param{
		{name: "session", kind: ident, doc: "only those of this session"},
		{name: "type", doc: "only those of this type; a final * matches any rest"},
		{name: "stored", kind: yesNo, doc: "only stored events, then an event end without an id"},
		tenantParam,
	}
	approvalParams = []param{
		{name: "session", kind: ident, doc: "only those of this session"},
		afterParam, limitParam, tenantParam,
	}
	importParams = []param{{name: "name", doc: "name of the image; optional if the archive has names"}}
	reloadParams = []param{{name: "dry_run", kind: yesNo, doc: "only look at it, and keep the one that holds"}}

	doctorParams = []param{{name: "probe", kind: yesNo, doc: "also check from inside a throw-away session; takes seconds"}}
)

// parseQuery reads a query that has only parameters of the route.
func (rt *route) parseQuery(raw string) (url.Values, error) {
	if raw == "" && len(rt.query) == 0 {
		return nil, nil
	}
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalid("the query is malformed: "+err.Error(), "percent-encode its values")
	}
	for name, values := range q {
		i := slices.IndexFunc(rt.query, func(p param) bool { return p.name == name })
		if i < 0 {
			return nil, invalid(fmt.Sprintf("unknown query parameter %q", name), rt.paramHint())
		}
		if err := rt.query[i].check(values); err != nil {
			return nil, err
		}
	}
	for _, p := range rt.query {
		if p.required && q.Get(p.name) == "" {
			return nil, invalid(fmt.Sprintf("query parameter %q is missing", p.name), "it is "+p.doc)
		}
	}
	return q, nil
}

func (rt *route) paramHint() string {
	if len(rt.query) == 0 {
		return "this route has none"
	}
	var names []string
	for _, p := range rt.query {
		names = append(names, p.name)
	}
	return "this route has: " + strings.Join(names, ", ")
}

func (p param) check(values []string) error {
	if len(values) > 1 && !p.many {
		return invalid(fmt.Sprintf("query parameter %q is given %d times", p.name, len(values)), "give it once")
	}
	for _, v := range values {
		if why := p.wrong(v); why != "" {
			return invalid(fmt.Sprintf("query parameter %s=%q: %s", p.name, plain.Cut(v, maxShown), why), "it is: "+p.doc)
		}
	}
	return nil
}

// wrong says what is wrong with a value, "" for nothing.
func (p param) wrong(v string) string {
	switch p.kind {
	case yesNo:
		if !slices.Contains([]string{"0", "1", "false", "true"}, v) {
			return "not 1, true, 0 or false"
		}
	case count:
		if n, err := strconv.ParseInt(v, 10, 64); err != nil || n < 0 {
			return "not a whole number from 0 on"
		}
	case ident:
		return anyName.wrong(v)
	case text:
		if p.values != nil && !slices.Contains(p.values, v) {
			return "not one of " + strings.Join(p.values, ", ")
		}
		return wrongText(v, cmp.Or(p.most, maxText))
	}
	return ""
}

func (r *request) flag(name string) bool {
	v := r.query.Get(name)
	return v == "1" || v == "true"
}

// number is a parameter of kind count, 0 when it is absent.
func (r *request) number(name string) int64 {
	n, _ := strconv.ParseInt(r.query.Get(name), 10, 64) // checked by parseQuery
	return n
}

// page gives ?after= and ?limit=.
func (r *request) page() (after string, limit int, err error) {
	return r.pageOf(maxPage)
}

// pageOf is page where one has at most so many items.
func (r *request) pageOf(most int64) (after string, limit int, err error) {
	n := r.number("limit")
	if n > most {
		return "", 0, invalid(fmt.Sprintf("limit=%d is more than %d", n, most), "ask for smaller pages")
	}
	return r.query.Get("after"), int(cmp.Or(n, 100)), nil
}

// ofSession reports whether the {id} of the path is a session's.
func (rt *route) ofSession() bool { return strings.HasPrefix(rt.pattern, "/v1/sessions/{id}") }

// pathID is what a part of a route's path may be.
type pathID struct {
	at   string // the routes that have it begin so; it is the last part of this
	what string
	form // of a valid one
	hint string
}

// pathIDs are their kinds. That of a session or a checkpoint may be its name.
var pathIDs = []pathID{
	{"/v1/sessions/{id}", "session", anyName, "give its id, which begins with ses_, or its name"},
	{"/v1/sessions/{id}/checkpoints/{checkpoint}", "checkpoint", anyName, "GET /v1/sessions/{id}/checkpoints lists them; give the id, which begins with cp_, or the name"},
	{"/v1/sessions/{id}/caches/{cache}", "cache", cacheName, "GET /v1/caches lists those that are kept"},
	{"/v1/caches/{id}", "cache", cacheName, "GET /v1/caches lists those that are kept"},
	{"/v1/calls/{id}", "call", callID, "GET /v1/sessions/{id}/calls lists those of a session"},
	{"/v1/approvals/saved/{id}", "saved approval", savedID, "GET /v1/approvals/saved lists them"},
	{"/v1/images/{id}", "image", imageName, "GET /v1/images lists their names and digests; write / as %2F"},
	{"/v1/approvals/{id}", "approval", approvalID, "GET /v1/approvals lists those that are pending"},
}

// pathIDs are the kinds of those in the route's path, in their order.
func (rt *route) pathIDs() []pathID {
	return slices.DeleteFunc(slices.Clone(pathIDs), func(k pathID) bool { return !strings.HasPrefix(rt.pattern, k.at) })
}

// name is how patterns call it.
func (k *pathID) name() string { return strings.Trim(path.Base(k.at), "{}") }

// checkIDs checks those of a request's path.
func (rt *route) checkIDs(r *http.Request) error {
	for _, kind := range rt.pathIDs() {
		id := r.PathValue(kind.name())
		if why := kind.wrong(id); why != "" {
			return invalid(fmt.Sprintf("%q is not the id of a %s: %s", plain.Cut(id, maxShown), kind.what, why), kind.hint)
		}
	}
	return nil
}

func noSession(id string) *client.Error {
	return &client.Error{
		Code: client.CodeNotFound, Message: fmt.Sprintf("there is no session %s", id),
		Hint: "GET /v1/sessions lists yours",
	}
}

func noCall(id string) *client.Error {
	return &client.Error{
		Code: client.CodeNotFound, Message: fmt.Sprintf("there is no call %s", id),
		Hint: "GET /v1/sessions/{id}/calls lists those of a session",
	}
}
