package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
)

func TestCreateRefuses(t *testing.T) {
	h := newHouse(t)
	dir := t.TempDir()
	h.set.WorktreeRoots = []string{dir}
	h.set.Tenants = map[string]Tenant{"a": {Limits: client.Limits{PIDs: 40}, MaxLimits: client.Limits{PIDs: 50}}}
	h.open()
	h.create(alice, client.SessionCreate{Name: "taken"})
	many := make(map[string]string)
	for i := range 65 {
		many[fmt.Sprintf("l%d", i)] = "x"
	}
	for _, tt := range []struct {
		name string
		r    client.SessionCreate
		code client.Code
		says string
	}{
		{"name with a slash", client.SessionCreate{Name: "a/b"}, client.CodeInvalidRequest, "name"},
		{"name with dots first", client.SessionCreate{Name: "../x"}, client.CodeInvalidRequest, "name"},
		{"name of 300", client.SessionCreate{Name: strings.Repeat("n", 300)}, client.CodeInvalidRequest, "name"},
		{"name with NUL", client.SessionCreate{Name: "a\x00"}, client.CodeInvalidRequest, "name"},
		{"name like an id", client.SessionCreate{Name: "ses_1"}, client.CodeInvalidRequest, "ses_"},
		{"name that is taken", client.SessionCreate{Name: "taken"}, client.CodeConflict, "taken"},
		{"profile", client.SessionCreate{Profile: "nonsense"}, client.CodeInvalidRequest, "nonsense"},
		{"image", client.SessionCreate{Image: "debian twelve"}, client.CodeInvalidRequest, "image"},
		{"runtime", client.SessionCreate{Runtime: "runsc"}, client.CodeInvalidRequest, "fake, other"},
		{"delegates", client.SessionCreate{Delegates: []string{"question"}}, client.CodeInvalidRequest, "delegates"},
		{"network", client.SessionCreate{Network: client.Network{Mode: "proxy"}}, client.CodeInvalidRequest, "network.mode"},
		{"network that there is not", client.SessionCreate{Network: client.Network{Mode: client.NetworkRules}}, client.CodeForbidden, `[network] mode is "none"`},
		{"label key", client.SessionCreate{Labels: map[string]string{"a b": "c"}}, client.CodeInvalidRequest, "label"},
		{"label value", client.SessionCreate{Labels: map[string]string{"a": "c\n"}}, client.CodeInvalidRequest, "label"},
		{"labels", client.SessionCreate{Labels: many}, client.CodeInvalidRequest, "65"},
		{"env", client.SessionCreate{Env: map[string]string{"BASH_FUNC_x%%": "() { :; }"}}, client.CodeInvalidRequest, "BASH_FUNC"},
		{"env BASH_ENV", client.SessionCreate{Env: map[string]string{"BASH_ENV": "x"}}, client.CodeInvalidRequest, "BASH_ENV"},
		{"env GIT", client.SessionCreate{Env: map[string]string{"GIT_DIR": "x"}}, client.CodeInvalidRequest, "GIT_DIR"},
		{"ttl", client.SessionCreate{TTL: -1}, client.CodeInvalidRequest, "ttl"},
		{"ttl without its unit", client.SessionCreate{TTL: client.Duration(60 * time.Millisecond)}, client.CodeInvalidRequest, "a number alone is milliseconds"},
		{"idle", client.SessionCreate{IdleTimeout: client.Duration(11 * maxTTL / 10)}, client.CodeInvalidRequest, "idle_timeout"},
		{"lease", client.SessionCreate{LeasePID: -1}, client.CodeInvalidRequest, "lease_pid"},
		{"lease of nobody", client.SessionCreate{LeasePID: 1 << 30}, client.CodeInvalidRequest, "no such process"},
		{"lease of another", client.SessionCreate{LeasePID: 1}, client.CodeForbidden, "not a process of yours"},
		{"memory above the ceiling", client.SessionCreate{Limits: client.Limits{Memory: 1 << 30}}, client.CodeInvalidRequest, "128MiB"},
		{"pids above the tenant's", client.SessionCreate{Limits: client.Limits{PIDs: 51}}, client.CodeInvalidRequest, "limits.pids"},
		{"negative limit", client.SessionCreate{Limits: client.Limits{OpenFiles: -5}}, client.CodeInvalidRequest, "open_files"},
		{"too many cpus", client.SessionCreate{Limits: client.Limits{CPUs: 100000}}, client.CodeInvalidRequest, "cpus"},
		{"wall", client.SessionCreate{Limits: client.Limits{Wall: client.Duration(time.Hour)}}, client.CodeInvalidRequest, "1m0s"},
		{"mode", client.SessionCreate{Worktree: client.Worktree{Mode: "overlay"}}, client.CodeInvalidRequest, "overlay"},
		{"ref", client.SessionCreate{Worktree: client.Worktree{Ref: "main"}}, client.CodeInvalidRequest, "ref"},
		{"bind of nothing", client.SessionCreate{Worktree: client.Worktree{Mode: "bind"}}, client.CodeInvalidRequest, "worktree.source"},
		{"empty of something", client.SessionCreate{Worktree: client.Worktree{Mode: "empty", Source: dir}}, client.CodeInvalidRequest, "worktree.source"},
		{"target", client.SessionCreate{Worktree: client.Worktree{Target: "/etc"}}, client.CodeInvalidRequest, "/etc"},
		{"relative target", client.SessionCreate{Worktree: client.Worktree{Target: "w"}}, client.CodeInvalidRequest, "target"},
		{"target with dots", client.SessionCreate{Worktree: client.Worktree{Target: "/w/../etc"}}, client.CodeInvalidRequest, "target"},
		{"root as target", client.SessionCreate{Worktree: client.Worktree{Target: "/"}}, client.CodeInvalidRequest, "target"},
		{"source outside", client.SessionCreate{Worktree: client.Worktree{Source: "/usr/share"}}, client.CodeForbidden, "/usr/share"},
		{"source that is not there", client.SessionCreate{Worktree: client.Worktree{Source: dir + "/nothing"}}, client.CodeInvalidPath, "nothing"},
		{"mount outside", client.SessionCreate{Mounts: []client.Mount{{Source: dir, Target: "/cache"}}}, client.CodeForbidden, "mount"},
		{"mount of nothing", client.SessionCreate{Mounts: []client.Mount{{Target: "/cache"}}}, client.CodeInvalidRequest, "no source"},
		{"mount over the worktree", client.SessionCreate{Mounts: []client.Mount{{Source: dir, Target: "/workspace"}}}, client.CodeInvalidRequest, "given twice"},
		{"mount above the worktree", client.SessionCreate{Worktree: client.Worktree{Target: "/a/b"}, Mounts: []client.Mount{{Source: dir, Target: "/a"}}}, client.CodeInvalidRequest, "above the worktree"},
		{"mount in the worktree, of another's", client.SessionCreate{Mounts: []client.Mount{{Source: dir, Target: "/workspace/x"}}}, client.CodeForbidden, "mount"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			who := alice
			if tt.code == client.CodeInvalidPath {
				who = root // alice cannot reach dir, and is told no more
			}
			s, err := h.m.Create(t.Context(), who, tt.r)
			if codeOfErr(err) != tt.code || s != nil || !strings.Contains(fmt.Sprint(err), tt.says) {
				t.Errorf("got %v, %v, want %s about %q", s, err, tt.code, tt.says)
			}
			if f, ok := errors.AsType[*fault.Error](err); ok && f.Kind == fault.Invalid && (len(f.Places) != 1 || !pointsInto(tt.r, f.Places[0].Path)) {
				t.Errorf("%v is about %v, which is no field of the request", err, f.Places)
			}
		})
	}
	if n := len(h.host.boxes); n != 1 {
		t.Errorf("%d sandboxes were made", n-1)
	}
	if held, _, err := h.store.Leases(t.Context()); err != nil || len(held) != 1 {
		t.Errorf("leases %v, %v", held, err)
	}
	if list, err := h.m.List(t.Context(), alice, client.SessionQuery{All: true}); err != nil || len(list.Items) != 1 {
		t.Errorf("sessions %v, %v", list, err)
	}
}

// pointsInto reports whether a pointer leads to a field that a body has, or could have.
func pointsInto(body any, pointer string) bool {
	at := reflect.ValueOf(body)
	for i, name := range strings.Split(pointer, "/") {
		if i == 0 {
			if name != "" {
				return false
			}
			continue
		}
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		for at.Kind() == reflect.Pointer {
			at = at.Elem()
		}
		switch at.Kind() {
		case reflect.Struct:
			fields := reflect.VisibleFields(at.Type())
			i := slices.IndexFunc(fields, func(f reflect.StructField) bool {
				tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				return tag == name
			})
			if i < 0 {
				return false
			}
			at = at.FieldByIndex(fields[i].Index)
		case reflect.Slice:
			n, err := strconv.Atoi(name)
			if err != nil || n >= at.Len() {
				return false
			}
			at = at.Index(n)
		case reflect.Map:
			if at = at.MapIndex(reflect.ValueOf(name)); !at.IsValid() {
				return false
			}
		default:
			return false
		}
	}
	return pointer != ""
}

func TestCreateFillsIn(t *testing.T) {
	needs.OpenAt2(t)
	h := newHouse(t)
	dir := t.TempDir()
	h.set.MountRoots = []string{dir}
	h.set.Limits.Memory = 1 << 50
	h.open()
	if err := os.Mkdir(filepath.Join(dir, "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := h.m.Create(t.Context(), root, client.SessionCreate{
		Worktree: client.Worktree{Source: dir, Mode: client.WorktreeRO, Target: "/src"},
		Mounts:   []client.Mount{{Source: filepath.Join(dir, "c"), Target: "/cache"}},
		Limits:   client.Limits{PIDs: 7}, Labels: map[string]string{"a": "b"}, Runtime: "other", Token: true,
		Env: map[string]string{"SECRET": "hunter2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Profile != "build" || s.Runtime != "other" || s.Network.Mode != "none" || s.Tenant != "default" || s.IdleTimeout != client.Duration(time.Hour) {
		t.Errorf("session %+v", s)
	}
	if l := s.Limits; l.PIDs != 7 || l.Memory != 128<<20 || l.Calls != 4 || l.Wall != client.Duration(time.Minute) {
		t.Errorf("limits %+v", l)
	}
	box := h.host.box(s.ID)
	w := box.spec.Worktree
	if w.Source == nil || w.Target != "/src" || w.Mode != client.WorktreeRO || w.UID != uint32(os.Getuid()) || len(box.spec.Mounts) != 1 {
		t.Errorf("spec %+v", box.spec)
	}
	if _, err := w.Source.Stat(); err == nil {
		t.Error("the pinned worktree was left open")
	}
	if e := box.hello.Env; !slices.Contains(e, "SECRET=hunter2") || !slices.Contains(e, "HOME=/home/tool") || !slices.Contains(e, "PATH=/usr/bin:/bin") {
		t.Errorf("environment %v", e)
	}
	// Secrets and tokens are nowhere on the disk.
	h.stop()
	err = filepath.Walk(h.dir, func(path string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if strings.Contains(string(b), "hunter2") || strings.Contains(string(b), s.Token) {
				t.Errorf("%s holds a secret", path)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	h.open()
}

func TestFaultsWhileCreating(t *testing.T) {
	h := newHouse(t)
	h.open()
	boom := errors.New("Boom") // with a capital, which no id in a message has
	for _, op := range []string{"create", "created", "dial", "cgroup", "connect", "attach"} {
		t.Run(op, func(t *testing.T) {
			for range 20 {
				h.host.fail(op, boom)
				_, err := h.m.Create(t.Context(), alice, client.SessionCreate{Name: "n"})
				if codeOfErr(err) != client.CodeSandboxFailed || strings.Contains(err.Error(), boom.Error()) {
					t.Errorf("got %v", err)
				}
				h.host.fail(op, nil)
			}
			if n := len(h.host.boxes); n != 0 {
				t.Errorf("%d sandboxes are left", n)
			}
			if held, _, err := h.store.Leases(t.Context()); err != nil || len(held) != 0 {
				t.Errorf("leases %v, %v", held, err)
			}
			if n := len(mustReadDir(t, h.m.cfg.OutputDir)); n != 0 {
				t.Errorf("%d output directories are left", n)
			}
		})
	}
	if got, _ := h.m.tenant("a").places.Count(); got != 0 {
		t.Errorf("%d sessions are counted", got)
	}
	h.host.fail("create", fmt.Errorf("%w: disk", sandbox.ErrUnsupported))
	if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{}); codeOfErr(err) != client.CodeInvalidRequest || !strings.Contains(err.Error(), "disk") {
		t.Errorf("unsupported: %v", err)
	}
	h.host.fail("create", fmt.Errorf("/work/x: %w", sandbox.ErrMountTarget))
	if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{}); codeOfErr(err) != client.CodeInvalidRequest || !strings.Contains(err.Error(), "/work/x: mount_target_not_plain") {
		t.Errorf("mount target: %v", err)
	}
	for _, cause := range []error{ // as deep as it likes, also beside another error
		sandbox.ErrUnsupported, fmt.Errorf("a: b: %w", sandbox.ErrUnsupported), errors.Join(sandbox.ErrUnsupported, errors.New("and more")),
		sandbox.ErrMountTarget, errors.Join(errors.New("one more"), fmt.Errorf("a: %w", sandbox.ErrMountTarget)),
	} {
		for _, said := range []error{cause, &sandbox.OpError{Doing: "create", Session: "ses_1", Err: cause}, errors.Join(&sandbox.OpError{Doing: "create", Session: "ses_1", Err: cause})} {
			h.host.fail("create", said)
			if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{}); codeOfErr(err) != client.CodeInvalidRequest ||
				!strings.Contains(err.Error(), ": "+cause.Error()) || strings.Contains(err.Error(), "ses_1") {
				t.Errorf("%q: %v", said, err)
			}
		}
	}
	// What it lacks, and what can be done about it, is told however deep it is, without what else was seen.
	lacks := &sandbox.HostError{Cause: "it has no loop devices", Hint: "load the module loop", Err: errors.New("seen")}
	for _, said := range []error{
		lacks, errors.Join(errors.New("and seen"), fmt.Errorf("a: %w", lacks)), &sandbox.OpError{Doing: "create", Session: "ses_1", Err: errors.Join(lacks, boom)},
	} {
		h.host.fail("create", said)
		if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{}); codeOfErr(err) != client.CodeSandboxFailed ||
			!strings.Contains(err.Error(), lacks.Cause+"; "+lacks.Hint) || strings.Contains(err.Error(), "seen") || strings.Contains(err.Error(), boom.Error()) {
			t.Errorf("%q: %v", said, err)
		}
	}
	h.host.fail("create", errors.Join(boom, fault.Overloaded.Errorf("no room").Next("wait")))
	if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{}); codeOfErr(err) != client.CodeOverloaded || strings.Contains(err.Error(), boom.Error()) {
		t.Errorf("a joined fault: %v", err)
	}
	h.host.fail("create", context.Canceled)
	if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{}); codeOfErr(err) != client.CodeAborted {
		t.Errorf("cancelled: %v", err)
	}
	h.host.fail("create", nil)
	list, err := h.m.List(t.Context(), alice, client.SessionQuery{State: client.SessionLost, Limit: 1000})
	if err != nil || len(list.Items) != 142 || !strings.HasPrefix(list.Items[0].Reason, "it could not be made") {
		t.Errorf("%d lost sessions, %v", len(list.Items), err)
	}
}

// TestEndWhileCreating: a session that is ended while its sandbox is being made has
// none afterwards.
func TestEndWhileCreating(t *testing.T) {
	h, g := imageHouse(t)
	m := h.open()
	over := make(chan error, 1)
	h.host.onCreate = func() {
		go func() {
			_, err := m.End(t.Context(), alice, "short", client.EndOptions{Force: true})
			over <- err
		}()
		testrig.Eventually(t, "it is ending", func() bool { return m.live()[0].isEnding() })
		select {
		case err := <-over:
			over <- err
			t.Error("the end did not wait for what is being made")
		case <-time.After(200 * time.Millisecond):
		}
	}
	_, err := m.Create(t.Context(), alice, client.SessionCreate{Name: "short", Image: "tools:1"})
	if codeOfErr(err) != client.CodeSessionLost {
		t.Errorf("the creation: %v", err)
	}
	if err := <-over; err != nil {
		t.Errorf("the end: %v", err)
	}
	if all, err := h.host.List(t.Context(), "me"); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
	if n := g.holders(); n != 0 {
		t.Errorf("%d still hold the image", n)
	}
	list, err := m.List(t.Context(), alice, client.SessionQuery{All: true})
	if err != nil || len(list.Items) != 1 || list.Items[0].State != client.SessionEnded {
		t.Errorf("got %+v, %v", list, err)
	}
}

// TestCreateWhileLeaving: a creation that fails when the daemon has let go of its
// sessions ends nevertheless. The next daemon removes what it has made.
func TestCreateWhileLeaving(t *testing.T) {
	h := newHouse(t)
	m := h.open()
	h.host.onCreate = func() {
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	h.host.fail("dial", errors.New("boom"))
	over := make(chan error, 1)
	go func() {
		_, err := m.Create(t.Context(), alice, client.SessionCreate{})
		over <- err
	}()
	select {
	case err := <-over:
		if err == nil {
			t.Error("it was made")
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for an end that nobody makes")
	}
	h.host.onCreate = nil
	h.host.fail("dial", nil)
	h.stop()
	h.open()
	if all, err := h.host.List(t.Context(), "me"); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
}

func TestRangesAreQuarantined(t *testing.T) {
	h := newHouse(t)
	h.open()
	h.host.fail("destroy", errors.New("a process would not die"))
	s := h.create(alice, client.SessionCreate{})
	base := h.host.box(s.ID).spec.UIDBase
	ended, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{})
	if err != nil || ended.State != client.SessionEnded || !strings.Contains(strings.Join(ended.Notes, " "), "toolctl gc") {
		t.Errorf("ended %+v, %v", ended, err)
	}
	held, _, err := h.store.Leases(t.Context())
	if err != nil || len(held) != 1 || !held[0].Quarantined || held[0].Reason != "a process would not die" {
		t.Fatalf("leases %+v, %v", held, err)
	}
	// Neither this daemon nor the next gives the range away while it is in use.
	h.host.fail("destroy", nil)
	inUse := func(b uint32) (string, error) { return map[uint32]string{base: "process 1"}[b], nil }
	h.m.leases.InUse = inUse
	for range 2 {
		for range 3 {
			s := h.create(alice, client.SessionCreate{})
			if got := h.host.box(s.ID).spec.UIDBase; got == base {
				t.Errorf("range %d was given again", got)
			}
		}
		if all, err := h.m.Collector.GC(t.Context(), root, client.GCRequest{}); err != nil || len(all) == 0 || all[len(all)-1].Removed {
			t.Errorf("gc %+v, %v", all, err)
		}
		h.stop()
		if err := h.build().start(t, inUse); err != nil {
			t.Fatal(err)
		}
	}
	h.m.leases.InUse = func(uint32) (string, error) { return "", nil }
	all, err := h.m.Collector.GC(t.Context(), root, client.GCRequest{DryRun: true})
	if err != nil || len(all) != 1 || all[0].Kind != "uid range" || all[0].Removed {
		t.Errorf("dry run: %+v, %v", all, err)
	}
	if all, err = h.m.Collector.GC(t.Context(), root, client.GCRequest{}); err != nil || len(all) != 1 || !all[0].Removed {
		t.Errorf("gc: %+v, %v", all, err)
	}
}

func (m *Manager) start(t *testing.T, inUse func(uint32) (string, error)) error {
	m.leases.InUse = inUse
	return m.Start(t.Context())
}

func TestRequireRuntime(t *testing.T) {
	h := newHouse(t)
	h.set.Tenants = map[string]Tenant{"a": {RequireRuntime: "other"}, "b": {RequireRuntime: "absent"}}
	h.open()
	for _, asked := range []string{"", "other"} {
		if s := h.create(alice, client.SessionCreate{Runtime: asked}); s.Runtime != "other" {
			t.Errorf("asked for %q: the session runs on %q", asked, s.Runtime)
		}
	}
	for _, tt := range []struct {
		who    auth.Principal
		asked  string
		code   client.Code
		saying string
	}{
		{alice, "fake", client.CodeForbidden, `run on other (require_runtime), and this one asks for "fake"`},
		{bob, "", client.CodeInvalidRequest, `no such runtime "absent"; there are: fake, other`},
	} {
		_, err := h.m.Create(t.Context(), tt.who, client.SessionCreate{Runtime: tt.asked})
		if codeOfErr(err) != tt.code || !strings.Contains(fmt.Sprint(err), tt.saying) {
			t.Errorf("asked for %q: %v, want %s saying %q", tt.asked, err, tt.code, tt.saying)
		}
	}
}

// TestRuntimeFails: a runtime that there is and that fails is no mistake of the client's, and is
// tried again.
func TestRuntimeFails(t *testing.T) {
	h := newHouse(t)
	h.open()
	h.host.fail("try other", errors.New("no such luck"))
	_, err := h.m.Create(t.Context(), alice, client.SessionCreate{Runtime: "other"})
	if codeOfErr(err) != client.CodeOverloaded || !strings.Contains(fmt.Sprint(err), "no such luck") || !strings.Contains(fmt.Sprint(err), "try again") {
		t.Errorf("it fails: %v", err)
	}
	h.host.fail("try other", nil)
	h.create(alice, client.SessionCreate{Runtime: "other"})
	if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{Runtime: "third"}); codeOfErr(err) != client.CodeInvalidRequest || !strings.Contains(fmt.Sprint(err), "there are: fake, other") {
		t.Errorf("there is no such: %v", err)
	}
}

func TestQuota(t *testing.T) {
	h := newHouse(t)
	h.set.Tenants = map[string]Tenant{"a": {MaxSessions: 1}, "b": {MaxSessions: 2}}
	h.open()
	s := h.create(alice, client.SessionCreate{})
	for i, want := range []client.Code{"", "", client.CodeQuotaExceeded} {
		if _, err := h.m.Create(t.Context(), bob, client.SessionCreate{}); codeOfErr(err) != want {
			t.Errorf("session %d of b: %v", i, err)
		}
	}
	if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{}); codeOfErr(err) != client.CodeQuotaExceeded {
		t.Errorf("second session of a: %v", err)
	}
	if _, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	h.create(alice, client.SessionCreate{})
}

func TestEnd(t *testing.T) {
	for _, tt := range []struct {
		name   string
		o      client.EndOptions
		status client.CallStatus
		reason string
	}{
		{"calls end first", client.EndOptions{Keep: true}, client.CallCompleted, "session_ended"},
		{"by force", client.EndOptions{Force: true, Keep: true}, client.CallError, "session_ended"},
		{"outputs go", client.EndOptions{}, client.CallCompleted, "session_ended"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			h.open()
			s := h.create(alice, client.SessionCreate{Name: "n", Limits: client.Limits{Calls: 1}})
			box := h.host.box(s.ID)
			c := h.background(s.ID, "big 100000; hold")
			testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
			waits := h.background(s.ID, "echo never")
			ended, err := h.m.End(t.Context(), alice, "n", tt.o)
			if err != nil || ended.State != client.SessionEnded || ended.Ended == nil || ended.Usage.Calls != 2 {
				t.Errorf("ended %+v, %v", ended, err)
			}
			if done := h.finished(c.ID); done.Status != tt.status || done.Metadata["reason"] != tt.reason || done.Metadata["total_bytes"] == nil {
				t.Errorf("call %v %v %v", done.Status, done.Error, done.Metadata)
			}
			if done := h.finished(waits.ID); done.Status != client.CallError || done.Time.Started != nil {
				t.Errorf("waiting call %+v", done)
			}
			if again, err := h.m.End(t.Context(), alice, s.ID, tt.o); err != nil || again.State != client.SessionEnded {
				t.Errorf("again: %+v, %v", again, err)
			}
			_, err = os.Stat(filepath.Join(h.dir, "output", s.ID))
			if tt.o.Keep != (err == nil) {
				t.Errorf("output directory: %v", err)
			}
			if h.host.box(s.ID) != nil {
				t.Error("the sandbox is alive")
			}
			if _, err := h.m.End(t.Context(), alice, "n", client.EndOptions{}); codeOfErr(err) != client.CodeNotFound {
				t.Errorf("by the name, which is free now: %v", err)
			}
		})
	}
}

func TestTimesOfSessions(t *testing.T) {
	h := newHouse(t)
	h.open()
	lease := leaseHolder(t)
	leased := func(r client.SessionCreate) client.SessionCreate { r.LeasePID = lease.Process.Pid; return r }
	ttl := h.create(alice, client.SessionCreate{TTL: client.Duration(leastTTL)})
	idle := h.create(alice, client.SessionCreate{IdleTimeout: client.Duration(50 * time.Millisecond)})
	busy := h.create(alice, client.SessionCreate{IdleTimeout: -1})
	forever := h.create(alice, client.SessionCreate{IdleTimeout: -1})
	held, err := h.m.Create(t.Context(), root, leased(client.SessionCreate{}))
	if err != nil {
		t.Fatal(err)
	}
	h.background(busy.ID, "hold")
	box := h.host.box(busy.ID)
	testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
	h.idleAfter(busy.ID, 50*time.Millisecond)
	gone := func(p auth.Principal, id, says string) {
		t.Helper()
		testrig.Eventually(t, "session "+id+" has ended", func() bool {
			s, err := h.m.Get(t.Context(), p, id)
			return err == nil && s.State == client.SessionEnded && strings.Contains(s.Reason, says)
		})
	}
	gone(alice, ttl.ID, "ttl of 1s")
	gone(alice, idle.ID, "idle_timeout")
	for _, id := range []string{busy.ID, forever.ID} {
		if s, err := h.m.Get(t.Context(), alice, id); err != nil || s.State != client.SessionReady {
			t.Errorf("session %+v, %v", s, err)
		}
	}
	box.release()
	gone(alice, busy.ID, "idle_timeout")
	// The lease is watched by the next daemon, too.
	h.stop()
	h.open()
	if s, err := h.m.Get(t.Context(), root, held.ID); err != nil || s.State != client.SessionReady {
		t.Fatalf("session %+v, %v", s, err)
	}
	lease.end()
	gone(root, held.ID, "process")
	short := client.Duration(leastTTL)
	if _, err := h.m.Patch(t.Context(), alice, forever.ID, client.SessionPatch{TTL: &short}); err != nil {
		t.Fatal(err)
	}
	gone(alice, forever.ID, "ttl")
}

// idleAfter gives a session an idle_timeout while it is at work already.
func (h *house) idleAfter(id string, d time.Duration) {
	h.t.Helper()
	s, err := h.m.find(alice, id)
	if err == nil {
		err = s.write("", func(row *store.Session) error { row.IdleTimeout = client.Duration(d); return nil })
	}
	if err != nil {
		h.t.Fatal(err)
	}
	s.changed <- struct{}{}
}

// sleeper is a process that holds a lease.
type sleeper struct {
	*exec.Cmd
	end func() // kills it, once
}

func leaseHolder(t *testing.T) sleeper {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	return sleeper{cmd, end}
}

func TestLeaseThatEndsWithoutADaemon(t *testing.T) {
	h := newHouse(t)
	h.open()
	lease := leaseHolder(t)
	s, err := h.m.Create(t.Context(), root, client.SessionCreate{LeasePID: lease.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	h.stop()
	lease.end()
	h.open()
	testrig.Eventually(t, "the session has ended", func() bool {
		s, err := h.m.Get(t.Context(), root, s.ID)
		return err == nil && s.State == client.SessionEnded
	})
}

func TestPatch(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{Labels: map[string]string{"a": "1", "b": "2"}})
	hour, plan, nonsense, negative := client.Duration(time.Hour), "plan", "nonsense", client.Duration(-1)
	got, err := h.m.Patch(t.Context(), alice, s.ID, client.SessionPatch{Labels: map[string]string{"a": "", "c": "3"}, TTL: &hour, Profile: &plan})
	if err != nil || got.Profile != "plan" || !maps.Equal(got.Labels, map[string]string{"b": "2", "c": "3"}) || got.Expires == nil {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, r := range []client.SessionPatch{{Labels: map[string]string{"a b": "x"}}, {TTL: &negative}, {Profile: &nonsense}} {
		if _, err := h.m.Patch(t.Context(), alice, s.ID, r); codeOfErr(err) != client.CodeInvalidRequest {
			t.Errorf("%+v: %v", r, err)
		}
	}
	zero := client.Duration(0)
	if got, err = h.m.Patch(t.Context(), alice, s.ID, client.SessionPatch{TTL: &zero}); err != nil || got.Expires != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.m.Patch(t.Context(), alice, s.ID, client.SessionPatch{TTL: &zero}); codeOfErr(err) != client.CodeSessionLost {
		t.Errorf("over: %v", err)
	}
}

func TestList(t *testing.T) {
	h := newHouse(t)
	h.open()
	var ids []string
	for i := range 5 {
		s := h.create(alice, client.SessionCreate{Labels: map[string]string{"parity": fmt.Sprint(i % 2)}})
		ids = append(ids, s.ID)
	}
	if _, err := h.m.Create(t.Context(), bob, client.SessionCreate{}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.m.End(t.Context(), alice, ids[4], client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	list := func(f client.SessionQuery) (got []string, next string) {
		l, err := h.m.List(t.Context(), alice, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range l.Items {
			got = append(got, s.ID)
		}
		return got, l.Next
	}
	for _, tt := range []struct {
		name string
		f    client.SessionQuery
		want []string
		next string
	}{
		{"live", client.SessionQuery{}, ids[:4], ""},
		{"all", client.SessionQuery{All: true}, ids, ""},
		{"ended", client.SessionQuery{State: client.SessionEnded}, ids[4:], ""},
		{"ready", client.SessionQuery{State: client.SessionReady}, ids[:4], ""},
		{"label", client.SessionQuery{Labels: map[string]string{"parity": "1"}}, []string{ids[1], ids[3]}, ""},
		{"page", client.SessionQuery{Limit: 2}, ids[:2], ids[1]},
		{"next page", client.SessionQuery{Limit: 2, After: ids[1]}, ids[2:4], ""},
		{"page of labels", client.SessionQuery{Labels: map[string]string{"parity": "0"}, Limit: 1}, ids[:1], ids[0]},
	} {
		if got, next := list(tt.f); !slices.Equal(got, tt.want) || next != tt.next {
			t.Errorf("%s: got %v, %q, want %v, %q", tt.name, got, next, tt.want, tt.next)
		}
	}
	if _, err := h.m.List(t.Context(), alice, client.SessionQuery{After: "x"}); codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("bad cursor: %v", err)
	}
}

func TestRuntimeIsKnownFromTheBeginning(t *testing.T) {
	h := newHouse(t)
	m := h.open()
	m.cfg.Runtime = "fake"
	states := make(map[client.SessionState]string)
	m.cfg.Observers = append(m.cfg.Observers, stateWatcher{state: func(s *client.Session) { states[s.State] = s.Runtime }})
	h.create(alice, client.SessionCreate{})
	if states[client.SessionCreating] != "fake" || states[client.SessionReady] != "fake" {
		t.Errorf("runtimes %v", states)
	}
}

// stateWatcher is an Observer of states alone.
type stateWatcher struct {
	Observer
	state func(*client.Session)
}

func (w stateWatcher) SessionState(s *client.Session, _ client.SessionState) { w.state(s) }
func (stateWatcher) SandboxCreated(string, bool, time.Duration)              {}
func (stateWatcher) CallFinished(*client.Call, time.Duration, time.Duration) {}
