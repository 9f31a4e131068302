package session

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/cache/builtin"
	"github.com/toold/toold/internal/testrig"
)

// TestRealCaches: a session sees what was promoted and nothing that another one wrote.
func TestRealCaches(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	set := *m.settings.Load()
	npm, ok := builtin.Find("npm")
	if !ok {
		t.Fatal("no cache of npm")
	}
	own := func(name string, mode client.CacheMode) cache.Setting {
		c := builtin.Cache{Name: name, Dirs: []builtin.Dir{{Name: name}}}
		return cache.Setting{Cache: c, Path: "/caches/" + name, Mode: mode, Size: 32 << 20, Promote: []string{"build"}}
	}
	set.Caches = cache.Settings{{Cache: *npm, Mode: client.CacheCow, Size: 32 << 20}, own("own", client.CacheCow), own("all", client.CacheShared)}
	m.Reload(set)
	session := func(uses ...client.CacheUse) *client.Session {
		t.Helper()
		s, err := m.Create(t.Context(), mounter, client.SessionCreate{Caches: uses})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	bash := func(s *client.Session, command, want string) {
		t.Helper()
		if c := realCall(t, m, s.ID, "bash", object{"command": command}); !strings.Contains(c.Output, want) || c.IsError {
			t.Errorf("%s: %q, %v", command, c.Output, c.Error)
		}
	}
	end := func(s *client.Session) {
		t.Helper()
		if _, err := m.End(t.Context(), mounter, s.ID, client.EndOptions{Force: true}); err != nil {
			t.Error(err)
		}
	}
	one := session(client.CacheUse{Name: "own"}, client.CacheUse{Name: "all"}, client.CacheUse{Name: "npm"})
	bash(one, "echo kept >/caches/own/f; echo all >/caches/all/f; env", "npm_config_cache=")
	for name, code := range map[string]client.Code{"all": client.CodeInvalidRequest, "none": client.CodeNotFound} {
		if _, err := m.Caches.PromoteCache(t.Context(), mounter, one.ID, name); codeOfErr(err) != code {
			t.Errorf("promote %s: %v", name, err)
		}
	}
	if _, err := m.Caches.PromoteCache(t.Context(), alice, one.ID, "npm"); codeOfErr(err) != client.CodeForbidden {
		t.Errorf("a user promotes what no profile is named for: %v", err)
	}
	if made, err := m.Caches.PromoteCache(t.Context(), alice, one.ID, "own"); err != nil || made.Bytes == 0 {
		t.Fatalf("%+v, %v", made, err)
	}
	bash(one, "echo hostile >/caches/own/f; cat /caches/own/f", "hostile")
	two := session(client.CacheUse{Name: "own"}, client.CacheUse{Name: "all"})
	bash(two, "cat /caches/own/f /caches/all/f", "kept\nall\n")
	end(one)
	end(two)
	host := realTree(t, m, ``, map[string]string{"g": "of the host\n"})
	three := session(client.CacheUse{Name: "own", From: map[string]string{"own": host}})
	bash(three, "ls /caches/own; echo more >>/caches/own/g; cat /caches/own/g", "g\nof the host\nmore\n")
	end(three)
	if kept, layers := m.Caches.Bytes(); kept == 0 || layers != 0 {
		t.Errorf("%d bytes are kept, and %d of layers", kept, layers)
	}
	list, err := m.Caches.ListCaches(t.Context(), alice)
	if err != nil || !slices.ContainsFunc(list.Items, func(c client.Cache) bool { return c.Name == "own" }) {
		t.Errorf("%+v, %v", list, err)
	}
	for _, c := range []struct {
		p    auth.Principal
		name string
		code client.Code
	}{{alice, "own", client.CodeForbidden}, {mounter, "own", ""}, {mounter, "own", client.CodeNotFound}} {
		if err := m.Caches.RemoveCache(t.Context(), c.p, c.name); err != nil && codeOfErr(err) != c.code || err == nil && c.code != "" {
			t.Errorf("remove %s: %v", c.name, err)
		}
	}
	if _, err := m.Caches.PromoteCache(t.Context(), mounter, one.ID, "own"); err == nil {
		t.Error("a session that is over was promoted")
	}
	for _, uses := range [][]client.CacheUse{
		{{Name: "nobody"}},
		{{Name: "own"}, {Name: "own"}},
		{{Name: "own", From: map[string]string{"other": host}}},
		{{Name: "all", From: map[string]string{"all": host}}},
		slices.Repeat([]client.CacheUse{{Name: "own"}}, maxCaches+1),
	} {
		if _, err := m.Create(t.Context(), mounter, client.SessionCreate{Caches: uses}); codeOfErr(err) != client.CodeInvalidRequest {
			t.Errorf("%d caches, the first %+v: %v", len(uses), uses[0], err)
		}
	}
}

// TestRealNetwork: what a session may reach changes with the rules, and is summed up.
func TestRealNetwork(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	realTree(t, m, "permission = { external_directory = \"allow\", network = { \"*:8088\" = \"deny\" } }", nil)
	set := *m.settings.Load()
	set.Network.Mode = client.NetworkRules
	m.Reload(set)
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Permission: []client.RuleOf{{Permission: "http", Pattern: "* https://h.example/*", Action: "deny"}}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Network.Mode != client.NetworkRules {
		t.Skipf("no network here: %q", s.Notes)
	}
	if !slices.ContainsFunc(s.Notes, func(n string) bool { return strings.HasPrefix(n, "session rule 1: http ") }) {
		t.Errorf("no note says that its rule is about what cannot be read: %q", s.Notes)
	}
	c := realCall(t, m, s.ID, "bash", object{"command": "exec 3<>/dev/tcp/192.0.2.1/443 && cat <&3"})
	if !strings.Contains(c.Output, "network: 192.0.2.1:443 was denied by ") {
		t.Errorf("%q", c.Output)
	}
	var seen *client.SessionNetwork
	testrig.Eventually(t, "the denial is on record", func() bool {
		seen, err = m.Networks.Network(t.Context(), alice, s.ID)
		return err == nil && len(seen.Hosts) == 1
	})
	if seen.Mode != client.NetworkRules || seen.Hosts[0].Verdict != "deny" {
		t.Errorf("%+v", seen)
	}
	realTree(t, m, "permission = { external_directory = \"allow\", network = { \"*:*\" = \"deny\" } }", nil)
	if c := realCall(t, m, s.ID, "bash", object{"command": "exec 3<>/dev/tcp/192.0.2.1/443 && cat <&3"}); !strings.Contains(c.Output, `(network "*:*")`) {
		t.Errorf("after a reload: %q", c.Output)
	}
	if _, err := m.Create(t.Context(), mounter, client.SessionCreate{Network: client.Network{Mode: "proxy"}}); codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("an unknown mode: %v", err)
	}
}

// TestRealBudget: a session ends when it has used what it may in all.
func TestRealBudget(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	set := *m.settings.Load()
	set.Budget = client.Budget{Calls: 2, CPU: client.Duration(1e12), Wall: client.Duration(1e12), Output: 1 << 30}
	m.Reload(set)
	if _, err := m.Create(t.Context(), mounter, client.SessionCreate{Budget: client.Budget{Calls: -1}}); codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("a negative budget: %v", err)
	}
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Budget: client.Budget{Calls: 5}})
	if err != nil || s.Budget == nil || s.Budget.Calls != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	if c := realCall(t, m, s.ID, "bash", object{"command": "true"}); c.Metadata["budget_left"] == nil {
		t.Errorf("%v", c.Metadata)
	}
	realCall(t, m, s.ID, "bash", object{"command": "true"})
	testrig.Eventually(t, "the session is over", func() bool {
		now, err := m.Get(t.Context(), alice, s.ID)
		return err == nil && now.State == client.SessionEnded && strings.HasPrefix(now.Reason, "budget")
	})
}

// TestRealFileTrees: a tree goes out of a session as a tar, and into another.
func TestRealFileTrees(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, ``, map[string]string{"d/a": "content of a\n"})
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}})
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := m.Files.Pack(t.Context(), alice, s.ID, "d", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err = errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	if h, err := tar.NewReader(bytes.NewReader(text)).Next(); err != nil {
		t.Errorf("%+v, %v", h, err)
	}
	if _, _, err := m.Files.Pack(t.Context(), alice, s.ID, "none", 1<<20); err == nil {
		t.Error("a directory that is not there was packed")
	}
	c, err := m.Files.Unpack(t.Context(), alice, s.ID, "copy", 1<<20, io.NopCloser(bytes.NewReader(text)))
	if err != nil || c.IsError {
		t.Fatalf("%+v, %v", c, err)
	}
	if c := realCall(t, m, s.ID, "bash", object{"command": "cat copy/a copy/d/a 2>/dev/null"}); !strings.Contains(c.Output, "content of a") {
		t.Errorf("%q", c.Output)
	}
}

// TestRealCowMounts: a session writes to its own layer over a directory of the host, which
// stays as it is, and nothing of it is there for another session or becomes a cache.
func TestRealCowMounts(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	host := realTree(t, m, `permission = { external_directory = "allow" }`, map[string]string{"f": "host\n", "gone": "host\n"})
	set := *m.settings.Load()
	set.MountRoots = []string{host}
	m.Reload(set)
	mounts := []client.Mount{{Source: host, Target: "/data/own", Mode: client.MountCow}, {Source: host, Target: "/data/ro", Mode: client.MountRO}}
	for range 2 {
		s, err := m.Create(t.Context(), mounter, client.SessionCreate{Mounts: mounts, Limits: client.Limits{Disk: 32 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ command, want string }{
			{"cd /data/own && cat f gone && echo new >>f && rm gone && echo x >more && cat f && ls", "host\nhost\nhost\nnew\nf\nmore\n"},
			{"cat /data/ro/f; ls /data/ro; echo x >/data/ro/f", "host\nf\ngone\n/bin/bash: line 1: /data/ro/f: Read-only file system\n"},
			{"head -c 64M /dev/zero >/data/own/large", "limits.disk, which --limit disk= sets"},
		} {
			if done := realCall(t, m, s.ID, "bash", object{"command": c.command}); !strings.Contains(done.Output, c.want) {
				t.Errorf("%s: %q, %v", c.command, done.Output, done.Error)
			}
		}
		if _, err := m.Caches.PromoteCache(t.Context(), mounter, s.ID, "/data/own"); codeOfErr(err) != client.CodeNotFound {
			t.Errorf("a mount became a cache: %v", err)
		}
		if _, layers := m.Caches.Bytes(); layers == 0 {
			t.Error("what the session wrote is not counted")
		}
		if _, err := m.End(t.Context(), mounter, s.ID, client.EndOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
		if _, layers := m.Caches.Bytes(); layers != 0 {
			t.Errorf("%d bytes are left of the session", layers)
		}
	}
	for name, want := range map[string]string{"f": "host\n", "gone": "host\n"} {
		if b, err := os.ReadFile(filepath.Join(host, name)); err != nil || string(b) != want {
			t.Errorf("%s of the host: %q, %v", name, b, err)
		}
	}
	for _, c := range []struct {
		mount client.Mount
		code  client.Code
	}{
		{client.Mount{Source: host, Target: "/data/own", Mode: "rw"}, client.CodeInvalidRequest},
		{client.Mount{Source: "/etc", Target: "/data/own", Mode: client.MountCow}, client.CodeForbidden},
		{client.Mount{Source: t.TempDir(), Target: "/data/own", Mode: client.MountCow}, client.CodeForbidden},
	} {
		if _, err := m.Create(t.Context(), alice, client.SessionCreate{Mounts: []client.Mount{c.mount}}); codeOfErr(err) != c.code {
			t.Errorf("%+v: %v", c.mount, err)
		}
	}
}
