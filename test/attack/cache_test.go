package attack

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// caches are two that sessions of the test can have.
const caches = `
[[cache]]
name = "notes"
env = ["NOTES"]
size = "16MiB"
promote = ["wall"]
[[cache]]
name = "team"
mode = "shared"
size = "16MiB"
`

// spoil is what a hostile session does to what it sees of a cache.
const spoil = `cd /caches/notes
echo evil >base; echo evil >new; rm -r kept; ln -s /etc/passwd kept
ln new hard; mv base renamed; ln -s renamed base; mkfifo fifo; mkdir -m 0 shut; chmod 0 .
`

// listed says what a session sees of a cache.
const listed = `cd /caches/notes && find . | LC_ALL=C sort | tr '\n' ' '; cat base kept/file 2>&1`

// F15: what a session writes into its caches, fills and breaks there, is for another session
// of its tenant to run, or for one of another tenant, or becomes what later ones begin with.
func TestF15Caches(t *testing.T) {
	s := newScene(t, caches)
	with := func(c *client.Client, names ...string) *client.Session {
		t.Helper()
		var req client.SessionCreate
		for _, n := range names {
			req.Caches = append(req.Caches, client.CacheUse{Name: n})
		}
		x := s.session(t, c, req)
		t.Cleanup(func() { // before the host is looked at
			if _, err := c.EndSession(context.Background(), x.ID, client.EndOptions{Force: true}); err != nil {
				t.Error(err)
			}
		})
		return x
	}
	sees := func(who string, c *client.Client, id, want string) {
		t.Helper()
		if got := strings.TrimSpace(bash(t, c, id, listed).Output); got != want {
			t.Errorf("%s sees %q, want %q", who, got, want)
		}
	}
	const first = ". ./base ./kept ./kept/file one\ntwo"
	maker := with(s.a, "notes")
	bash(t, s.a, maker.ID, "cd $NOTES && echo one >base && mkdir kept && echo two >kept/file")
	if _, err := s.a.PromoteCache(t.Context(), maker.ID, "notes"); err != nil {
		t.Fatal(err)
	}
	before, evil := with(s.a, "notes"), with(s.a, "notes", "team")
	sees("the attacker at first", s.a, evil.ID, first)
	bash(t, s.a, evil.ID, spoil)
	sees("a session from before", s.a, before.ID, first)
	after := with(s.a, "notes")
	sees("a session from after", s.a, after.ID, first)
	theirs := with(s.b, "notes", "team")
	if out := bash(t, s.b, theirs.ID, "ls -A /caches/notes /caches/team").Output; strings.Contains(out, "base") || strings.Contains(out, "evil") {
		t.Errorf("another tenant sees %q", out)
	}

	// A shared one is the tenant's, and no other's.
	bash(t, s.a, evil.ID, "echo evil >/caches/team/evil")
	if out := bash(t, s.b, theirs.ID, "ls -A /caches/team; echo end").Output; strings.TrimSpace(out) != "end" {
		t.Errorf("another tenant sees in the shared cache %q", out)
	}

	// A full one is the matter of the session that filled it.
	c := bash(t, s.a, after.ID, "head -c 40M /dev/zero >/caches/notes/big")
	if c.Metadata["reason"] != "disk" || c.Metadata["full"] != "/caches/notes" || !strings.Contains(c.Output, "16MiB, the size of the cache notes, which [[cache]] size in config.toml sets") {
		t.Errorf("a full cache: %v %q", c.Metadata, c.Output)
	}
	bash(t, s.a, before.ID, "head -c 8M /dev/zero >/caches/notes/mine && rm /caches/notes/mine")
	sees("a neighbour of a full one", s.a, before.ID, first)

	// What becomes a base is what its session saw, and nothing of another's; and so it stays
	// when the daemon dies.
	bash(t, s.a, before.ID, "echo three >/caches/notes/base")
	if _, err := s.a.PromoteCache(t.Context(), before.ID, "notes"); err != nil {
		t.Fatal(err)
	}
	sees("a session with the second base", s.a, with(s.a, "notes").ID, ". ./base ./kept ./kept/file three\ntwo")
	sees("a session with the first", s.a, maker.ID, first)

	// Another tenant cannot promote it, nor see that there is one.
	if _, err := s.b.PromoteCache(t.Context(), evil.ID, "notes"); err == nil {
		t.Error("another tenant promoted it")
	}
	if list, err := s.b.ListCaches(t.Context(), client.CacheQuery{}); err != nil || len(list.Items) > 1 {
		t.Errorf("another tenant's list: %+v, %v", list, err)
	}

	// What is broken can be promoted: nothing of it leads out of the cache on the host.
	bash(t, s.a, evil.ID, "chmod 755 /caches/notes")
	if _, err := s.a.PromoteCache(t.Context(), evil.ID, "notes"); err != nil {
		t.Logf("the spoilt one is refused: %v", err)
	}
	if links, _ := filepath.Glob(filepath.Join(s.dir, "state/caches/disks/*/passwd")); len(links) > 0 {
		t.Errorf("found %q", links)
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Error(err)
	}
}
