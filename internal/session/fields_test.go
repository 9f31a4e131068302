package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/image"
)

// picky is a gallery that takes no name.
type picky struct{ *gallery }

func (picky) Pull(context.Context, client.ImagePull, func(client.ImageProgress)) (*client.Image, error) {
	return nil, fmt.Errorf("%w: it is no name", image.ErrInvalid)
}

// bodyFields are the fields of each JSON body of the API, by method and path.
func bodyFields(t *testing.T) map[string][]string {
	t.Helper()
	type schema struct {
		Ref        string                     `json:"$ref"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var spec struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct {
					Schema schema `json:"schema"`
				} `json:"content"`
			} `json:"requestBody"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	b, err := os.ReadFile("../../api/openapi.json")
	if err == nil {
		err = json.Unmarshal(b, &spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]string)
	for path, methods := range spec.Paths {
		for method, op := range methods {
			s := op.RequestBody.Content["application/json"].Schema
			if name, is := strings.CutPrefix(s.Ref, "#/components/schemas/"); is {
				s = spec.Components.Schemas[name]
			}
			if len(s.Properties) > 0 {
				all[strings.ToUpper(method)+" "+path] = slices.Sorted(maps.Keys(s.Properties))
			}
		}
	}
	return all
}

// TestRefusedFields: a value that a field of a body cannot have is refused by the JSON pointer to it, whatever the route;
// what no value of a field is refused for stands here.
func TestRefusedFields(t *testing.T) {
	h, _ := asking(t)
	h.m.roster.cfg.Images = map[string]Images{"fake": picky{newGallery()}}
	s := h.create(alice, client.SessionCreate{})
	_, a := h.waiting(s.ID, "ls x")
	const (
		anyBool = "it is true or false"
		asMade  = "it is refused as POST /v1/sessions refuses it"
		overlay = "see TestRealRefusedFields"
		nothing = "it is refused to users by itself, and of an admin's nothing is wrong"
	)
	create := func(r client.SessionCreate) error {
		_, err := h.m.Create(t.Context(), alice, r)
		return err
	}
	patch := func(r client.SessionPatch) error {
		_, err := h.m.Patch(t.Context(), alice, s.ID, r)
		return err
	}
	answer := func(r client.ApprovalAnswer) error {
		_, err := h.m.Approvals.Answer(t.Context(), carol, a.ID, r)
		return err
	}
	made := func(change func(*client.CallCreate)) error {
		r := bashCall("echo a")
		change(&r)
		_, err := h.m.calls.Call(t.Context(), alice, s.ID, r, call.Options{})
		return err
	}
	explain := func(r client.PolicyExplain) error {
		if r.Tool == "" {
			r.Tool, r.Input = "bash", json.RawMessage(`{"command": "ls"}`)
		}
		_, err := h.m.Policy.Explain(t.Context(), alice, r)
		return err
	}
	replayed := func(r client.PolicyReplay) error {
		if r.Rules == "" {
			r.Rules = `permission = "allow"`
		}
		_, err := h.replayer().Replay(t.Context(), root, r)
		return err
	}
	_, pulled := h.m.Images.PullImage(t.Context(), root, client.ImagePull{Ref: "x"}, nil)
	_, restored := h.m.trees.Restore(t.Context(), alice, s.ID, client.RestoreRequest{Undo: -1})
	_, frozen := h.m.trees.Checkpoint(t.Context(), alice, s.ID, client.CheckpointCreate{Name: "a/b"})
	long, never := client.Duration(11*maxTTL/10), client.Duration(-1)
	none := "none"
	// An error, or why there is none.
	table := map[string]map[string]any{
		"POST /v1/approvals/{id}": {
			"answer": answer(client.ApprovalAnswer{Answer: "yes"}), "expires": answer(client.ApprovalAnswer{Answer: "always", Expires: "soon"}),
			"message": answer(client.ApprovalAnswer{Answer: "once", Message: "m"}), "scope": answer(client.ApprovalAnswer{Answer: "always", Scope: "world"}), "sha256": answer(client.ApprovalAnswer{Answer: "once", SHA256: "00"}),
		},
		"POST /v1/drain":  {"off": anyBool},
		"POST /v1/gc":     {"dry_run": anyBool, "records": anyBool, "unknown": anyBool},
		"POST /v1/images": {"insecure": anyBool, "ref": pulled},
		"POST /v1/policy/explain": {
			"input": explain(client.PolicyExplain{Tool: "network", Input: json.RawMessage(`{"address": ""}`)}), "profile": explain(client.PolicyExplain{Profile: none}),
			"session": explain(client.PolicyExplain{Session: none}), "tenant": nothing, "tool": "it is refused as unknown, with those that there are",
		},
		"POST /v1/policy/replay": {
			"limit": replayed(client.PolicyReplay{Limit: -1}), "name": "it is for what is shown", "rules": replayed(client.PolicyReplay{Rules: "x = "}),
			"session": replayed(client.PolicyReplay{Session: none}), "since": replayed(client.PolicyReplay{Since: "soon"}), "tenant": nothing,
		},
		"POST /v1/sessions": {
			"at_most": create(client.SessionCreate{AtMost: client.Limits{Memory: -1}}), "budget": create(client.SessionCreate{Budget: client.Budget{Calls: -1}}), "caches": create(client.SessionCreate{Caches: []client.CacheUse{{Name: none}}}),
			"delegates": create(client.SessionCreate{Delegates: []string{none}}), "env": create(client.SessionCreate{Env: map[string]string{"BASH_ENV": "x"}}), "idle_timeout": create(client.SessionCreate{IdleTimeout: long}),
			"image": create(client.SessionCreate{Image: "debian twelve"}), "key": create(client.SessionCreate{Key: "a\x00"}), "labels": create(client.SessionCreate{Labels: map[string]string{"a b": "c"}}),
			"lease_pid": create(client.SessionCreate{LeasePID: -1}), "limits": create(client.SessionCreate{Limits: client.Limits{OpenFiles: -1}}), "mounts": create(client.SessionCreate{Mounts: []client.Mount{{Target: "/m"}}}),
			"name": create(client.SessionCreate{Name: "a/b"}), "network": create(client.SessionCreate{Network: client.Network{Mode: "proxy"}}), "permission": create(client.SessionCreate{Permission: []client.RuleOf{{Permission: "bash", Pattern: "ls", Action: "maybe"}}}),
			"profile": create(client.SessionCreate{Profile: none}), "queue": create(client.SessionCreate{Queue: long}), "runtime": create(client.SessionCreate{Runtime: none}), "token": anyBool,
			"tools": create(client.SessionCreate{Tools: []string{none}}), "ttl": create(client.SessionCreate{TTL: never}), "worktree": create(client.SessionCreate{Worktree: client.Worktree{Mode: "bind"}}),
		},
		"PATCH /v1/sessions/{id}": {
			"labels": patch(client.SessionPatch{Labels: map[string]string{"a b": "c"}}), "profile": patch(client.SessionPatch{Profile: &none}), "ttl": patch(client.SessionPatch{TTL: &never}),
		},
		"POST /v1/sessions/{id}/apply": {
			"dry_run": anyBool, "exclude": overlay, "force": anyBool, "include_sensitive": anyBool, "merge": anyBool, "paths": overlay,
		},
		"POST /v1/sessions/{id}/calls": {
			"agent": made(func(r *client.CallCreate) { r.Agent = "a\x00" }), "env": made(func(r *client.CallCreate) { r.Env = map[string]string{"BASH_ENV": "x"} }),
			"extra": made(func(r *client.CallCreate) { r.Extra = json.RawMessage("1") }), "input": "the pointer is one into the input", "key": made(func(r *client.CallCreate) { r.Key = "a\x00" }),
			"message_id": made(func(r *client.CallCreate) { r.MessageID = "a\x00" }), "model": made(func(r *client.CallCreate) { r.Model = "a\x00" }),
			"timeout_ms": made(func(r *client.CallCreate) { r.TimeoutMillis = -1 }), "tool": "it is refused as unknown, with those that there are", "typed": anyBool, "wait_ms": made(func(r *client.CallCreate) { r.WaitMillis = new(int64(-1)) }),
		},
		"POST /v1/sessions/{id}/checkpoints": {"name": frozen},
		"POST /v1/sessions/{id}/discard":     {"paths": overlay},
		"POST /v1/sessions/{id}/fork":        {"at": overlay, "env": asMade, "labels": asMade, "name": asMade, "permission": asMade, "token": anyBool, "ttl": asMade},
		"POST /v1/sessions/{id}/restore":     {"checkpoint": overlay, "undo": restored},
	}
	all := bodyFields(t)
	for _, route := range slices.Sorted(maps.Keys(all)) {
		for _, field := range all[route] {
			switch got := table[route][field].(type) {
			case error:
				checkPlace(t, route, field, got)
			case string:
			default:
				t.Errorf("%s: a bad %s is not refused, or it is not in this table", route, field)
			}
			delete(table[route], field)
		}
		if len(table[route]) > 0 {
			t.Errorf("%s has no %v any more", route, table[route])
		}
		delete(table, route)
	}
	if len(table) > 0 || len(all) < 10 {
		t.Errorf("of %d routes there are none of these any more: %v", len(all), table)
	}
}

// checkPlace fails where an error is not about a field.
func checkPlace(t *testing.T, route, field string, err error) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || len(f.Places) != 1 || f.Places[0].Path != "/"+field && !strings.HasPrefix(f.Places[0].Path, "/"+field+"/") {
		t.Errorf("%s: what is wrong with %s is said without the pointer to it: %v %+v", route, field, err, f)
	}
}

// TestRealRefusedFields is TestRefusedFields for what only sessions of mode overlay have.
func TestRealRefusedFields(t *testing.T) {
	t.Parallel()
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, "", map[string]string{"f": "hello\n"})
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: client.WorktreeOverlay}})
	if err != nil {
		t.Fatal(err)
	}
	realWrite(t, m, s.ID)
	_, paths := m.trees.Apply(t.Context(), mounter, s.ID, client.ApplyRequest{Paths: []string{"../x"}})
	_, exclude := m.trees.Apply(t.Context(), mounter, s.ID, client.ApplyRequest{Exclude: []string{strings.Repeat("x", 1<<20)}})
	_, discard := m.trees.Discard(t.Context(), mounter, s.ID, client.DiscardRequest{Paths: []string{"../x"}})
	_, at := m.trees.Fork(t.Context(), mounter, s.ID, client.ForkRequest{At: "none"})
	_, checkpoint := m.trees.Restore(t.Context(), mounter, s.ID, client.RestoreRequest{Checkpoint: "none"})
	_, env := m.trees.Fork(t.Context(), mounter, s.ID, client.ForkRequest{Env: map[string]string{"BASH_ENV": "x"}})
	for field, err := range map[string]error{"paths": paths, "exclude": exclude, "at": at, "checkpoint": checkpoint, "env": env} {
		checkPlace(t, "overlay", field, err)
	}
	checkPlace(t, "discard", "paths", discard)
}

// realWrite changes a file of a session.
func realWrite(t *testing.T, m *Manager, session string) {
	t.Helper()
	r := bashCall("echo changed > f")
	if c, err := m.calls.Call(t.Context(), mounter, session, r, call.Options{}); err != nil || c.IsError {
		t.Fatal(c, err)
	}
}
