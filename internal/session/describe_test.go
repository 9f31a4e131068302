package session

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// toolsOf are the definitions that somebody is given, by name.
func toolsOf(t *testing.T, m *Manager, p auth.Principal, f client.ToolQuery) map[string]*tool.Definition {
	t.Helper()
	defs, err := m.Tools.Tools(t.Context(), p, f)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]*tool.Definition)
	for _, d := range defs.Tools {
		all[d.Name] = d
	}
	return all
}

func describes(t *testing.T, d *tool.Definition, want ...string) {
	t.Helper()
	for _, part := range want {
		if d == nil || !strings.Contains(d.Description+string(d.Schema), part) {
			t.Errorf("%q is missing in %+v", part, d)
		}
	}
}

// TestDescriptionsOfSessions: descriptions say what holds in the session that they are
// for, and in no other.
func TestDescriptionsOfSessions(t *testing.T) {
	needs.OpenAt2(t)
	h := newHouse(t)
	h.set.BashTimeout = 45 * time.Second
	source := t.TempDir()
	h.set.WorktreeRoots = []string{source}
	h.open()
	all := toolsOf(t, h.m, alice, client.ToolQuery{})
	describes(t, all["bash"], "more than 45 seconds", "at most 60000)", "The default is 45000 (45 seconds), the most 60000.", "There may be no network")
	if strings.Contains(all["bash"].Description, "session:") {
		t.Errorf("without a session: %s", all["bash"].Description)
	}
	explore := toolsOf(t, h.m, alice, client.ToolQuery{Profile: "explore"})
	for name, d := range explore {
		for _, denied := range []string{"edit", "write"} {
			if strings.Contains(d.Description, "`"+denied+"`") {
				t.Errorf("%s sends explore to %s: %s", name, denied, d.Description)
			}
		}
	}
	if explore["edit"] != nil || explore["read"] == nil {
		t.Errorf("explore has %v", explore)
	}

	s := h.create(alice, client.SessionCreate{
		Worktree: client.Worktree{Target: "/src"}, Limits: client.Limits{Wall: client.Duration(30 * time.Second), PIDs: 77}, Token: true,
	})
	h.host.box(s.ID).prepared = &run.Prepared{Targets: []run.Target{
		{Asked: "/src", Path: "/src", Exists: true, Kind: "dir"},
		{Asked: "/src/.git", Path: "/src/.git", Exists: true, Kind: "dir"},
		{Asked: "/usr/bin/make", Path: "/usr/bin/gmake", Exists: true, Kind: "file"},
		{Asked: "/usr/bin/go", Path: "/usr/bin/go", Exists: true, Kind: "dir"},
	}}
	for _, f := range []client.ToolQuery{{Session: s.ID}, {}} {
		p := alice
		if f.Session == "" {
			p.Session = s.ID // a token's holder asks about its session
		}
		mine := toolsOf(t, h.m, p, f)
		describes(t, mine["bash"], "`/src`", "It is a git repository", "`/src`, `/home/tool` and `/tmp` can be written, everything else is read-only", "no network",
			"1 CPU, ", "64MiB of memory", "77 processes", "`/bin/bash`", "among others: make.", "Not here: git, cmake, gcc, clang, go,", "at most 30000)",
			"The default is 30000 (30 seconds), the most 30000.")
		describes(t, mine["write"], "worktree is `/src`", "can be written")
		describes(t, mine["grep"], "worktree is `/src`")
	}
	if other := toolsOf(t, h.m, alice, client.ToolQuery{}); strings.Contains(other["bash"].Description, "/src") {
		t.Errorf("said to others: %s", other["bash"].Description)
	}
	if _, err := h.m.Tools.Tools(t.Context(), bob, client.ToolQuery{Session: s.ID}); codeOfErr(err) != client.CodeNotFound {
		t.Errorf("another tenant: %v", err)
	}

	h.host.fail("prepare", run.Errorf(run.CodeSandboxFailed, "no"))
	silent := toolsOf(t, h.m, alice, client.ToolQuery{Session: s.ID})
	describes(t, silent["bash"], "In this session:", "`/src`")
	if d := silent["bash"].Description; strings.Contains(d, "Not here") || strings.Contains(d, "git repository") {
		t.Errorf("of a sandbox that does not answer: %s", d)
	}
	h.host.fail("prepare", nil)
	if _, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	describes(t, toolsOf(t, h.m, alice, client.ToolQuery{Session: s.ID})["bash"], "In this session:", "`/src`")

	ro := h.create(mounter, client.SessionCreate{Worktree: client.Worktree{Source: source, Mode: client.WorktreeRO}, Env: map[string]string{"PATH": "/opt"}})
	mine := toolsOf(t, h.m, alice, client.ToolQuery{Session: ro.ID})
	describes(t, mine["bash"], "which is read-only", "`/home/tool` and `/tmp` can be written")
	if strings.Contains(mine["bash"].Description, "Not here") {
		t.Errorf("with a PATH of its own: %s", mine["bash"].Description)
	}
}

// TestRealDescriptions: what descriptions say of a session is what its programs find.
func TestRealDescriptions(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, ``, map[string]string{".git/HEAD": "ref: refs/heads/main\n"})
	set := *m.settings.Load()
	set.Policy = rules(t, "[permission]\nexternal_directory = \"allow\"\n")
	m.Reload(set)
	for mode, git := range map[client.WorktreeMode]string{client.WorktreeBind: "It is a git repository.", client.WorktreeRO: "It is a git repository.", client.WorktreeEmpty: "It is not a git repository."} {
		w := client.Worktree{Mode: mode}
		if mode != client.WorktreeEmpty {
			w.Source = dir
		}
		s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: w})
		if err != nil {
			t.Fatal(err)
		}
		d := toolsOf(t, m, alice, client.ToolQuery{Session: s.ID})["bash"]
		describes(t, d, git, "`/home/tool`", "`/tmp`")
		sh := func(command string) string {
			c := realCall(t, m, s.ID, "bash", object{"command": command})
			if c.Error != nil {
				t.Fatalf("%s: %+v", command, c.Error)
			}
			return c.Output
		}
		found := sh("for p in " + strings.Join(usualPrograms, " ") + "; do command -v $p >/dev/null && echo $p; done; true")
		_, list, _ := strings.Cut(d.Description, "Programs that are here, among others: ")
		here, rest, _ := strings.Cut(list, ". Not here: ")
		missing, _, _ := strings.Cut(rest, ".")
		for _, p := range usualPrograms {
			there := slices.Contains(strings.Fields(found), p)
			if slices.Contains(strings.Split(here, ", "), p) != there || slices.Contains(strings.Split(missing, ", "), p) == there {
				t.Errorf("%s: there is %s: %t; said: %s", mode, p, there, list)
			}
		}
		for _, place := range []string{"/workspace", "/home/tool", "/tmp", "/usr", "/etc", "/opt", "/var/lib", "/"} {
			writable := strings.HasPrefix(sh("touch "+place+"/.probe && echo yes; rm -f "+place+"/.probe; true"), "yes")
			_, text, _ := strings.Cut(d.Description, "In this session:")
			_, text, _ = strings.Cut(text, "\n- ")
			_, text, _ = strings.Cut(text, "\n- ")
			text, _, _ = strings.Cut(text, " can be written")
			if said := strings.Contains(text, "`"+place+"`"); said != writable {
				t.Errorf("%s: %s can be written: %t; said: %q", mode, place, writable, text)
			}
		}
		if net := sh("cat /proc/net/route | wc -l; true"); !strings.HasPrefix(net, "1") && !strings.HasPrefix(net, "0") || !strings.Contains(d.Description, "There is no network") {
			t.Errorf("%s: routes %q; %s", mode, net, d.Description)
		}
		raw, err := json.Marshal(d.Schema)
		if err != nil || !strings.Contains(string(raw), "the most 600000") {
			t.Errorf("%s: %s", mode, raw)
		}
	}
}
