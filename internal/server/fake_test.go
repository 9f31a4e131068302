package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing/iotest"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/tool"
)

// wholeAPI is all that is behind the routes, in one.
type wholeAPI interface {
	Sessions
	Calls
	Files
	Events
	Approvals
	Policy
	Images
	Tools
	Usage
	Collector
	Health
	Drainer
	Doctor
	Replayer
	Trees
	Networks
	Caches
}

func apiOf(f wholeAPI) API {
	return API{Sessions: f, Calls: f, Files: f, Events: f, Approvals: f, Policy: f, Images: f, Tools: f, Usage: f, Collector: f, Health: f, Doctor: f, Replay: f, Trees: f, Networks: f, Caches: f, Drainer: f}
}

// fakeAPI is the whole API in memory, with one tool: "echo" finishes at once,
// "wait" when released, "fail" is an error with a record, "panic" panics.
type fakeAPI struct {
	release chan struct{} // closing it finishes the calls of tool "wait"

	mu       sync.Mutex // guards what follows
	n        int
	sessions map[string]*client.Session
	calls    map[string]*client.Call
	files    map[string][]byte
	images   []client.Image
	events   []client.Event
	wake     chan struct{} // closed and replaced at each event
	last     auth.Principal
	filter   any // of the last list
	created  int
	aborted  int
	waiting  int      // calls of tool "wait"
	inputs   []func() // of calls of tool "hold", which go on when they are answered
}

func newFake() *fakeAPI {
	return &fakeAPI{
		release: make(chan struct{}), wake: make(chan struct{}), sessions: map[string]*client.Session{},
		calls: map[string]*client.Call{}, files: map[string][]byte{},
		images: []client.Image{{Digest: "sha256:01", Names: []string{fakeImage}}},
	}
}

func (f *fakeAPI) seen() auth.Principal {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (f *fakeAPI) Create(_ context.Context, p auth.Principal, r client.SessionCreate) (*client.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = p
	f.n++
	f.created++
	now := time.Now().UTC()
	s := &client.Session{
		ID: fmt.Sprintf("ses_%d", f.n), Name: r.Name, State: client.SessionReady, Tenant: p.Tenant, Profile: "build",
		Driver: "fake", Runtime: "none", Worktree: r.Worktree, Mounts: r.Mounts, Network: client.Network{Mode: "none"}, Limits: r.Limits,
		Labels: r.Labels, Notes: []string{"a note"}, TTL: r.TTL, Created: now, Expires: &now,
	}
	f.sessions[s.ID] = s
	f.eventLocked(client.EventSessionCreated, s.ID, "", s)
	answer := *s
	if r.Token {
		answer.Token = "tok-" + s.ID
	}
	return &answer, nil
}

func (f *fakeAPI) eventLocked(kind, ses, call string, data any) {
	b, _ := json.Marshal(data)
	f.events = append(f.events, client.Event{
		ID: fmt.Sprintf("evt_%d", len(f.events)+1), Type: kind, Time: time.Now().UTC(),
		Session: ses, Call: call, Data: b,
	})
	close(f.wake)
	f.wake = make(chan struct{})
}

func (f *fakeAPI) Get(_ context.Context, p auth.Principal, id string) (*client.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = p
	s := f.sessions[id]
	if s == nil || s.Tenant != p.Tenant {
		return nil, noSession(id)
	}
	c := *s
	return &c, nil
}

func (f *fakeAPI) List(_ context.Context, p auth.Principal, q client.SessionQuery) (client.List[client.Session], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.filter = p, q
	var l client.List[client.Session]
	for _, id := range slices.Sorted(maps.Keys(f.sessions)) {
		if f.sessions[id].Tenant == p.Tenant {
			l.Items = append(l.Items, *f.sessions[id])
		}
	}
	return l, nil
}

func (f *fakeAPI) Patch(ctx context.Context, p auth.Principal, id string, r client.SessionPatch) (*client.Session, error) {
	s, err := f.Get(ctx, p, id)
	if err == nil {
		s.Labels = r.Labels
	}
	return s, err
}

func (f *fakeAPI) End(ctx context.Context, p auth.Principal, id string, o client.EndOptions) (*client.Session, error) {
	s, err := f.Get(ctx, p, id)
	if err == nil {
		s.State = client.SessionEnded
		s.Reason = fmt.Sprintf("%+v", o)
	}
	return s, err
}

func (f *fakeAPI) Call(ctx context.Context, p auth.Principal, id string, r client.CallCreate, o call.Options) (*client.Call, error) {
	if o.Input != nil {
		if r.Tool == "hold" {
			f.mu.Lock()
			f.inputs = append(f.inputs, o.Input)
			f.mu.Unlock()
		} else {
			defer o.Input()
		}
	}
	if _, err := f.Get(ctx, p, id); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.n++
	c := &client.Call{
		ID: fmt.Sprintf("call_%d", f.n), Key: r.Key, SessionID: id, Tool: r.Tool, Input: r.Input, Extra: r.Extra,
		Status: client.CallPending, Metadata: map[string]any{}, Time: client.CallTime{Queued: time.Now().UTC()},
	}
	f.calls[c.ID] = c
	f.mu.Unlock()
	event := func(kind string, data any) {
		b, _ := json.Marshal(data)
		if o.OnEvent != nil {
			o.OnEvent(client.Event{ID: "evt_9", Type: kind, Data: b})
		}
	}
	switch r.Tool {
	case "panic":
		panic("secret " + string(r.Input))
	case "lost":
		return nil, &client.Error{Code: client.CodeSessionLost, Message: "the session is over"}
	case "broken":
		return nil, fmt.Errorf("dial /run/secret: %w", io.ErrUnexpectedEOF)
	}
	if r.Tool == "late" {
		time.Sleep(100 * time.Millisecond)
		return nil, &client.Error{Code: client.CodeOverloaded, Message: "no place came free"}
	}
	event("pending", c)
	if r.Tool == "late panic" {
		panic("late")
	}
	if r.Tool == "wait" {
		var timer <-chan time.Time
		if r.WaitMillis != nil {
			timer = time.After(time.Duration(*r.WaitMillis) * time.Millisecond)
		}
		f.count(&f.waiting, 1)
		defer f.count(&f.waiting, -1)
		select {
		case <-f.release:
		case <-timer:
			return f.set(c, client.CallRunning, ""), nil
		case <-ctx.Done():
			if o.AbortOnDisconnect {
				f.count(&f.aborted, 1)
			}
			return nil, ctx.Err()
		}
	}
	event("output", client.NewOutput("", 0, r.Input))
	event("metadata", map[string]any{"half": true})
	status := client.CallCompleted
	if r.Tool == "fail" {
		status = client.CallError
	}
	done := f.set(c, status, string(r.Input))
	if r.Tool != "silent" {
		event(string(status), done)
	}
	return done, nil
}

// count adds to a number that mu guards.
func (f *fakeAPI) count(n *int, more int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*n += more
}

func (f *fakeAPI) set(c *client.Call, status client.CallStatus, output string) *client.Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.Status, c.Output = status, output
	if status == client.CallError {
		c.Error = &client.Error{Code: client.CodeDenied, Message: "denied"}
	}
	copied := *c
	return &copied
}

func (f *fakeAPI) GetCall(_ context.Context, p auth.Principal, id string) (*client.Call, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = p
	c := f.calls[id]
	if c == nil || f.sessions[c.SessionID].Tenant != p.Tenant {
		return nil, noCall(id)
	}
	copied := *c
	return &copied, nil
}

func (f *fakeAPI) ListCalls(ctx context.Context, p auth.Principal, id string, q client.CallQuery) (client.List[client.Call], error) {
	l := client.List[client.Call]{Next: "call_99"}
	if _, err := f.Get(ctx, p, id); err != nil {
		return l, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filter = q
	for _, cid := range slices.Sorted(maps.Keys(f.calls)) {
		if f.calls[cid].SessionID == id {
			l.Items = append(l.Items, *f.calls[cid])
		}
	}
	return l, nil
}

func (f *fakeAPI) AbortCall(ctx context.Context, p auth.Principal, id string) (*client.Call, error) {
	c, err := f.GetCall(ctx, p, id)
	if err == nil {
		f.count(&f.aborted, 1)
	}
	return c, err
}

func (f *fakeAPI) Output(ctx context.Context, p auth.Principal, id string, o client.OutputQuery) (io.ReadCloser, int64, error) {
	c, err := f.GetCall(ctx, p, id)
	if err != nil {
		return nil, 0, err
	}
	f.mu.Lock()
	f.filter = o
	f.mu.Unlock()
	if c.Tool == "endless" {
		return io.NopCloser(zeros{}), 0, nil
	}
	from := min(o.Offset, int64(len(c.Output)))
	total := int64(len(c.Output))
	if o.Stream != "" {
		total *= 2 // that of both
	}
	return io.NopCloser(strings.NewReader(c.Output[from:])), total, nil
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func (f *fakeAPI) Upload(ctx context.Context, p auth.Principal, id, path string, mode uint32, body io.Reader) (*client.Call, error) {
	if _, err := f.Get(ctx, p, id); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(body)
	if err != nil { // a call, too, though it failed: what the body was cut off by comes first
		return &client.Call{ID: "call_1", SessionID: id, Tool: "file_put", Status: client.CallError}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[path] = b
	return &client.Call{
		ID: "call_1", SessionID: id, Tool: "file_put", Input: json.RawMessage(`{}`), Status: client.CallCompleted,
		Title: fmt.Sprintf("%o", mode), Metadata: map[string]any{},
	}, nil
}

func (f *fakeAPI) Download(ctx context.Context, p auth.Principal, id, path string) (io.ReadCloser, int64, error) {
	if _, err := f.Get(ctx, p, id); err != nil {
		return nil, 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.files[path]
	if !ok {
		return nil, 0, &client.Error{Code: client.CodeInvalidPath, Message: "no file"}
	}
	return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
}

// Pack streams a file as it is; one called broken breaks off.
func (f *fakeAPI) Pack(ctx context.Context, p auth.Principal, id, path string, most int64) (io.ReadCloser, string, error) {
	r, _, err := f.Download(ctx, p, id, path)
	if err == nil && path == "broken" {
		r = io.NopCloser(io.MultiReader(r, iotest.ErrReader(errors.New("broken"))))
	}
	return r, "call_9", err
}

// Unpack reads a body; of a path called early only its first byte.
func (f *fakeAPI) Unpack(ctx context.Context, p auth.Principal, id, path string, most int64, body io.ReadCloser) (*client.Call, error) {
	defer body.Close()
	if path == "early" {
		_, _ = body.Read(make([]byte, 1))
		return &client.Call{ID: "call_2", SessionID: id, Tool: "file_put_tree", Input: json.RawMessage(`{}`), Status: client.CallCompleted, IsError: true, Metadata: map[string]any{}}, nil
	}
	c, err := f.Upload(ctx, p, id, path, 0, io.LimitReader(body, most))
	if err == nil {
		c.Tool = "file_put_tree"
	}
	return c, err
}

func (f *fakeAPI) Events(ctx context.Context, p auth.Principal, q event.Filter) (<-chan client.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.filter = p, q
	next := len(f.events)
	if q.After != "" {
		fmt.Sscanf(q.After, "evt_%d", &next)
	}
	ch := make(chan client.Event)
	go func() {
		defer close(ch)
		for {
			f.mu.Lock()
			todo, wake := f.events[min(next, len(f.events)):], f.wake
			f.mu.Unlock()
			for _, e := range todo {
				next++
				select {
				case ch <- e:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-wake:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ch, nil
}

func (f *fakeAPI) Tools(_ context.Context, p auth.Principal, q client.ToolQuery) (*tool.Set, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.filter = p, q
	d, _ := tool.NewRegistry().Get("bash")
	described, err := d.Describe(tool.Facts{Timeout: 7 * time.Second})
	return &tool.Set{Revision: "r1", Tools: []*tool.Definition{described}, Absent: []tool.Absent{{Name: "edit", Why: "a reason"}}}, err
}

func (f *fakeAPI) Brief(_ context.Context, p auth.Principal, session string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = p
	if s := f.sessions[session]; s == nil || s.Tenant != p.Tenant {
		return "", noSession(session)
	}
	return "the brief of " + session, nil
}

func (f *fakeAPI) TokenSession(_ context.Context, token string) (auth.Principal, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, ok := strings.CutPrefix(token, "tok-")
	s := f.sessions[id]
	if !ok || s == nil {
		return auth.Principal{}, forbidden("the token belongs to no live session", "ask whoever made the session for a new one")
	}
	return auth.Principal{Session: id, SessionName: s.Name, Tenant: s.Tenant}, nil
}

func (f *fakeAPI) Doctor(_ context.Context, _ auth.Principal, probe bool) (*client.Doctor, error) {
	return &client.Doctor{Checks: []client.Check{{Group: "host", Name: "kernel", Status: client.CheckOK, Detail: "fine", Probed: probe}}}, nil
}

func (f *fakeAPI) GC(_ context.Context, _ auth.Principal, r client.GCRequest) ([]client.Garbage, error) {
	return []client.Garbage{{Kind: "mount", Name: "x", Removed: !r.DryRun}}, nil
}

func (f *fakeAPI) Drain(auth.Principal, bool) error { return nil }

func (f *fakeAPI) Ready(context.Context) client.Health { return client.Health{Status: "ok"} }

// fakeImage is an image that the fake has.
const fakeImage = "team/first:1"

// Pulling tells of progress, but for "gone:1", which is not there; "gone:2" is lost
// after some.
func (f *fakeAPI) Images(context.Context, auth.Principal) ([]client.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.images), nil
}

func (f *fakeAPI) PullImage(_ context.Context, _ auth.Principal, r client.ImagePull, progress func(client.ImageProgress)) (*client.Image, error) {
	if progress != nil && r.Ref != "gone:1" {
		progress(client.ImageProgress{Stage: "download", Layer: 1, Layers: 2, Bytes: 5, Total: 10})
	}
	if strings.HasPrefix(r.Ref, "gone:") {
		return nil, &client.Error{Code: client.CodeNotFound, Message: r.Ref + " is not there", Hint: "look"}
	}
	return f.addImage(r.Ref, 1), nil
}

func (f *fakeAPI) ImportImage(_ context.Context, _ auth.Principal, name string, archive io.Reader) (*client.Image, error) {
	n, err := io.Copy(io.Discard, archive)
	if err != nil {
		return nil, err
	}
	return f.addImage(name, n), nil
}

func (f *fakeAPI) addImage(name string, size int64) *client.Image {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images = append(f.images, client.Image{Digest: "sha256:00", Names: []string{name}, Size: client.Size(size)})
	return &f.images[len(f.images)-1]
}

func (f *fakeAPI) RemoveImage(_ context.Context, _ auth.Principal, ref string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(f.images)
	f.images = slices.DeleteFunc(f.images, func(i client.Image) bool { return i.Names[0] == ref })
	if len(f.images) == before {
		return &client.Error{Code: client.CodeNotFound, Message: "there is no image " + ref}
	}
	return nil
}
