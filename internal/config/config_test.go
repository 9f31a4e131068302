package config

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tomltext"
)

// same compares settings, not where they came from.
func same(a, b *Config) bool {
	x, y := *a, *b
	x.origins, y.origins = origins{}, origins{}
	x.Policy, y.Policy = nil, nil // package policy has tests of its own
	normalise(&x)
	normalise(&y)
	return reflect.DeepEqual(x, y) //nolint:govet // the rules, which have errors in them, are left out
}

// normalise makes empty and absent lists alike: they mean the same.
func normalise(c *Config) {
	for _, l := range []*[]string{&c.Worktrees.Roots, &c.Worktrees.Mounts, &c.Sandbox.HostPaths, &c.Approvals.Command} {
		if len(*l) == 0 {
			*l = nil
		}
	}
	if len(c.Admin.GIDs) == 0 {
		c.Admin.GIDs = nil
	}
}

func shipped(t *testing.T) []byte {
	t.Helper()
	doc, err := os.ReadFile("../../config.toml")
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestShippedFileIsTheDefault(t *testing.T) {
	got, err := Parse("config.toml", shipped(t))
	if err != nil {
		t.Fatal(err)
	}
	if !same(got, Default()) {
		t.Errorf("config.toml says\n%+v\nDefault says\n%+v", got, Default())
	}
}

// TestEarlierFiles: what an earlier version shipped and documented loads as it did; what it asks for and
// does not get is a warning.
func TestEarlierFiles(t *testing.T) {
	t.Parallel()
	a, err := txtar.ParseFile("testdata/earlier.txtar")
	if err != nil || len(a.Files) < 30 {
		t.Fatalf("%d files, %v", len(a.Files), err)
	}
	warnings := map[string][]string{
		"docs/policy.md/wildcards/rules.toml": {"without arguments only"},
		"docs/policy.md/order/rules.toml":     {"stands last and undoes line 2"},
		"docs/policy.md/runtime/rules.toml":   {"stands last and undoes line 13"},
		"docs/policy.md/opaque/rules.toml":    {"never decides", "stands last and undoes line 3"},
		// What these asked for was not done before either.
		"docs/policy.md/network/rules.toml": {"its hosts are refused as a whole", "it allows nothing by itself"},
	}
	example := regexp.MustCompile(`(?m)^#([^ ])`)
	for _, f := range a.Files {
		if path.Base(f.Name) == "worktree.toml" {
			if _, err := policy.ParseCeiling(f.Name, f.Data); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
			continue
		}
		for _, text := range [][]byte{f.Data, example.ReplaceAll(f.Data, []byte("$1"))} {
			rules, err := policy.Parse(f.Name, text)
			if !strings.HasPrefix(f.Name, "docs/policy.md") || strings.Contains(f.Name, "/doc_operations/") {
				var c *Config
				if c, err = Parse(f.Name, text); err == nil {
					rules = c.Policy
				}
			}
			if err != nil {
				t.Errorf("%s: %v", f.Name, err)
				continue
			}
			var got []string
			for _, w := range rules.Warnings() {
				got = append(got, w.Message)
			}
			if want := warnings[f.Name]; !slices.EqualFunc(got, want, strings.Contains) {
				t.Errorf("%s: warnings %q, want %q", f.Name, got, want)
			}
		}
	}
}

// TestEarlierTests: a daemon starts with [[test]]s that an earlier version passed and by which this one asks
// more, or denies it, and says so; those by which less is asked or denied are errors.
func TestEarlierTests(t *testing.T) {
	t.Parallel()
	const rules = `[permission.bash]
"*" = "ask"
"exec *" = "allow"
"env *" = "allow"
"docker *" = "allow"
"./x.sh" = "allow"
"npm *" = "allow"
`
	for _, tt := range []struct {
		tool, input, expect string
		unmet, refused      bool
	}{
		{"edit", `{ file_path = ".env", old_string = "a", new_string = "b" }`, "allow", true, false},
		{"bash", `{ command = "exec -l bash -c ls" }`, "allow", true, false},
		{"bash", `{ command = "env -i bash -c ls" }`, "allow", true, false},
		{"bash", `{ command = "./x.sh", workdir = "sub" }`, "allow", true, false},
		{"bash", `{ command = "rm -rf /" }`, "allow", true, false},
		{"bash", `{ command = "npm test" }`, "allow", false, false},
		{"bash", `{ command = "npm test" }`, "ask", false, true},
		{"bash", `{ command = "npm test" }`, "deny", false, true},
		{"bash", `{ comand = "npm test" }`, "allow", false, true},
		{"network", `{ address = "example.com:443" }`, "allow", true, false},
	} {
		text := fmt.Sprintf("%s[[test]]\ntool = %q\ninput = %s\nexpect = %q\n", rules, tt.tool, tt.input, tt.expect)
		c, err := Parse("config.toml", []byte(text))
		if (err != nil) != tt.refused {
			t.Errorf("%s is %s: %v", tt.input, tt.expect, err)
			continue
		}
		if err == nil && (len(c.Policy.Unmet()) > 0) != tt.unmet {
			t.Errorf("%s is %s: unmet are %v", tt.input, tt.expect, c.Policy.Unmet())
		}
		if err == nil && tt.unmet && !slices.Contains(c.Policy.Warnings(), c.Policy.Unmet()[0]) {
			t.Errorf("%s: the warnings are %v", tt.input, c.Policy.Warnings())
		}
		// Who tries the tests is told all.
		if _, err := policy.Parse("rules.toml", []byte(text)); (err != nil) != (tt.unmet || tt.refused) {
			t.Errorf("alone, %s is %s: %v", tt.input, tt.expect, err)
		}
	}
}

// TestShippedFileHasEveryKey uncomments the examples, so that they are valid
// too, and looks each setting up.
func TestShippedFileHasEveryKey(t *testing.T) {
	doc := regexp.MustCompile(`(?m)^#([^ ])`).ReplaceAll(shipped(t), []byte("$1"))
	c, err := Parse("config.toml", doc)
	if err != nil {
		t.Fatal(err)
	}
	keys := Keys()
	for _, k := range keysOf(reflect.TypeFor[Tenant]()) {
		keys = append(keys, "tenant.ci."+k)
	}
	keys = append(keys, "permission.bash", "profile.review.permission", "profile.review.description",
		"profile.review.require_mode", "profile.review.truncate.max_lines", "profile.review.truncate.max_bytes", "profile.review.truncate.direction",
		"rule.1.tenant", "rule.1.reason", "test.1.expect", "tenant.ci.profiles", "tenant.ci.permission")
	for _, k := range keysOf(reflect.TypeFor[Hook]()) {
		keys = append(keys, "hook.1."+k)
	}
	for _, k := range appendKeys(nil, "limits.", reflect.TypeFor[Limits]()) {
		keys = append(keys, "tenant.ci."+k)
	}
	for _, k := range keys {
		if !c.origins.has(strings.Split(k, ".")...) {
			t.Errorf("config.toml does not show %s", k)
		}
	}
}

func TestDefaultIsValid(t *testing.T) {
	if err := tomltext.Join(Default().problems()); err != nil {
		t.Error(err)
	}
	c, err := Parse("empty.toml", nil)
	if err != nil || !same(c, Default()) {
		t.Errorf("an empty file: %+v, %v", c, err)
	}
}

// TestDefaultsLeaveRoomForABuild: the home directory holds a build cache.
func TestDefaultsLeaveRoomForABuild(t *testing.T) {
	if l := Default().Limits; l.Disk < 4<<30 {
		t.Errorf("home is %s, too small for the cache of a Go build", l.Disk)
	}
}

func TestSet(t *testing.T) {
	c, err := Parse("x.toml", []byte(`
limits = { memory = "4GiB", wall = "20m" }
daemon.log = "json"
[tools]
bash = { timeout = "30s", shell = ["/bin/sh"] }
[limits_]
`))
	if err == nil {
		t.Fatal("limits_ was accepted")
	}
	if len(tomltext.Problems(err)) != 1 {
		t.Fatalf("got %v, want limits_ only", err)
	}
	if c.Limits.Memory != 4<<30 || time.Duration(c.Limits.Wall) != 20*time.Minute || c.Daemon.Log != "json" {
		t.Errorf("got %+v", c)
	}
	if time.Duration(c.Tools.Bash.Timeout) != 30*time.Second || !slices.Equal(c.Tools.Bash.Shell, []string{"/bin/sh"}) {
		t.Errorf("got %+v", c.Tools)
	}
}

// TestOneWall: the longest time of a call has two names and one value.
func TestOneWall(t *testing.T) {
	for _, doc := range []string{"limits.wall = '5m'", "tools.bash.max_timeout = '5m'", "limits.wall = '5m'\ntools.bash.max_timeout = '300s'"} {
		c, err := Parse("x.toml", []byte(doc))
		if err != nil || time.Duration(c.Limits.Wall) != 5*time.Minute || c.Tools.Bash.MaxTimeout != c.Limits.Wall {
			t.Errorf("%s: got %v, %v, %v", doc, c.Limits.Wall, c.Tools.Bash.MaxTimeout, err)
		}
	}
}

func TestTmpIsUnset(t *testing.T) {
	for doc, want := range map[string]client.Size{
		"":                         0,
		"limits.memory = '512MiB'": 0,
		"limits.memory = '1GiB'\nlimits.tmp = '80MiB'": 80 << 20,
	} {
		c, err := Parse("x.toml", []byte(doc))
		if err != nil || c.Limits.Tmp != want {
			t.Errorf("%q: got %v, %v, want %v", doc, c.Limits.Tmp, err, want)
		}
	}
}

func TestProblems(t *testing.T) {
	for _, tt := range []struct{ name, doc, want string }{
		{"unknown key", "[daemon]\nsokcet = '/x'\n", `x.toml:2: unknown key daemon.sokcet: did you mean socket?`},
		{"other case", "[daemon]\nSocket = '/x'\n", `x.toml:2: unknown key daemon.Socket: keys are case-sensitive, write socket`},
		{"section in other case", "[Daemon]\n", `x.toml:1: unknown key Daemon: keys are case-sensitive, write daemon`},
		{"policy's section in other case", "[Permission]\nbash = 'ask'\n", `x.toml:1: unknown key Permission: keys are case-sensitive, write permission`},
		{"unknown section", "[frobnicate]\nx = 1\n", `x.toml:1: unknown key frobnicate: remove it`},
		{"empty key", "''.x = 1\n", `x.toml:1: unknown key "": remove it`},
		{"quoted key with a dot", "'daemon.socket' = '/x'\n", `x.toml:1: unknown key "daemon.socket": remove it`},
		{"type", "[daemon]\nsocket = 1\n", `x.toml:2: daemon.socket: want a string, not 1`},
		{"list type", "[worktrees]\nroots = '/srv'\n", `x.toml:2: worktrees.roots: want a list in [ ], not "/srv"`},
		{"list item", "[admin]\nuids = [0, -1]\n", `x.toml:2: admin.uids: item 2: want a whole number from 0 to 4294967295, not -1`},
		{"table", "daemon = 3\n", `x.toml:1: daemon is a table: write [daemon]`},
		{"array of tables", "[[daemon]]\nsocket = '/x'\n", `x.toml:1: daemon is a table: write [daemon]`},
		{"size", "[limits]\nmemory = 'much'\n", `x.toml:2: limits.memory: "much" is not a size: write bytes or a number with KiB, MiB, GiB or TiB`},
		{"duration without unit", "[limits]\nwall = 30\n", `x.toml:2: limits.wall: 30 what? write "30s"`},
		{"duration without unit as text", "[limits]\nwall = '30'\n", `x.toml:2: limits.wall: 30 what? write 30s`},
		{"word", "[daemon]\nlog = 'xml'\n", `x.toml:2: daemon.log: "xml" is not one of "auto", "json", "text"`},
		{"network", "[network]\nmode = 'proxy'\n", `x.toml:2: network.mode: "proxy" is not one of "none", "rules"`},
		{"network limits", "[network.limits]\nidle = '1ms'\n", `x.toml:2: network.limits.idle: is out of range: connections 1 to 65536, per_second 1 to 100000, bytes 0 or more, idle 1s to 720h`},
		{"ports for TLS", "[network]\ntls = [8443, 0]\n", `x.toml:2: network.tls: is [8443 0]: at most 32 ports, each 1 to 65535`},
		{"network of a tenant", "[tenant.a]\nuids = [1]\nnetwork = { mode = 'all' }\n", `x.toml:3: tenant.a.network.mode: "all" is not one of "none", "rules"`},
		{"later driver", "[sandbox]\ndriver = 'kubernetes'\n", `x.toml:2: sandbox.driver: "kubernetes" is not one of "oci", "docker"`},
		{"docker without an image", "[sandbox]\ndriver = 'docker'\n", `x.toml:1: sandbox.rootfs: "host": with driver = "docker" it is the name of the image that sessions have by default, such as debian:12`},
		{"docker with a path", "[sandbox]\ndriver = 'docker'\nrootfs = 'debian:12'\nruntime = '/usr/bin/runc'\n", `x.toml:4: sandbox.runtime: "/usr/bin/runc" is neither "auto" nor the name of a runtime of the Docker Engine`},
		{"a runtime's path in a tenant", "[tenant.t]\nuids = [7]\nrequire_runtime = '/usr/bin/runsc'\n", `x.toml:3: tenant.t.require_runtime: "/usr/bin/runsc" is no name of a runtime: use runc, crun, runsc, or the last part of the path in sandbox.runtime`},
		{"image", "[sandbox]\nrootfs = 'debian 12'\n", `x.toml:2: sandbox.rootfs: "debian 12" is neither "host", nor the name of an image such as tools:1, nor an absolute path of a directory`},
		{"host paths without host", "[sandbox]\nrootfs = '/srv/root'\nhost_paths = ['/usr']\n", `x.toml:3: sandbox.host_paths: means nothing unless rootfs = "host": remove it`},
		{"mode of worktrees", "[worktrees]\nmode = 'copy'\n", `x.toml:2: worktrees.mode: "copy" is not one of "bind", "ro", "overlay"`},
		{"later mode", "[worktrees]\nmode = 'git'\n", `x.toml:2: worktrees.mode: "git" is not one of "bind", "ro", "overlay"`},
		{"changes kept for no time", "[worktrees]\nkeep = '0s'\n", `x.toml:2: worktrees.keep: must be more than 0`},
		{"checkpoints", "[worktrees]\ncheckpoint = 'always'\n", `x.toml:2: worktrees.checkpoint: "always" is not one of "off", "call", "message"`},
		{"sensitive pattern", "[worktrees]\nsensitive = ['ops/', '" + strings.Repeat("x", 5000) + "']\n", `x.toml:2: worktrees.sensitive: pattern 2 cannot be read, or has more than 4096 bytes`},
		{"mode of a tenant", "[tenant.t]\nuids = [7]\nrequire_mode = 'empty'\n", `x.toml:3: tenant.t.require_mode: "empty" is not one of "bind", "ro", "overlay"`},
		{"mode of a profile", "[profile.p]\nrequire_mode = 'git'\n", `x.toml:2: profile.p.require_mode: "git" is not one of "bind", "ro", "overlay"`},
		{"root of the host", "[worktrees]\nroots = ['/']\n", `x.toml:2: worktrees.roots: the host's whole root is never a choice here`},
		{"unclean path", "[daemon]\nrun_dir = '/run/../x'\n", `x.toml:2: daemon.run_dir: "/run/../x" is not a clean path: write "/x"`},
		{"path twice", "[worktrees]\nroots = ['/a', '/a']\n", `x.toml:2: worktrees.roots: "/a" stands here twice`},
		{"NUL", "[daemon]\nrun_dir = \"/a\\u0000\"\n", `x.toml:2: daemon.run_dir: "/a\x00" has a NUL byte`},
		{"same directories", "[daemon]\nstate_dir = '/a'\nrun_dir = '/a'\n", `x.toml:3: daemon.run_dir: is the same directory as state_dir: the one is emptied at a reboot, the other must not be`},
		{"open metrics", "[metrics]\nlisten = ':9477'\n", `x.toml:2: metrics.listen: ":9477" is not HOST:PORT with an address or a name of this host, such as 127.0.0.1:9477; empty turns it off`},
		{"metrics at a strange name", "[metrics]\nlisten = '*:9477'\n", `x.toml:2: metrics.listen: "*:9477" is not HOST:PORT with an address or a name of this host, such as 127.0.0.1:9477; empty turns it off`},
		{"metrics at a strange port", "[metrics]\nlisten = 'toold:http'\n", `x.toml:2: metrics.listen: "toold:http" is not HOST:PORT with an address or a name of this host, such as 127.0.0.1:9477; empty turns it off`},
		{"uid base", "[sandbox]\nuid_base = 1000\n", `x.toml:2: sandbox.uid_base: 1000 is not a multiple of 65536 between 65536 and 2147418112`},
		{"zero limit", "[limits]\npids = 0\n", `x.toml:2: limits.pids: must be at least 16`},
		{"no cpu", "[limits]\ncpus = 0\n", `x.toml:2: limits.cpus: 0 is not between 0.01 and 4096 cores`},
		{"cpu not a number", "[limits]\ncpus = nan\n", `x.toml:2: limits.cpus: NaN is not between 0.01 and 4096 cores`},
		{"timeout above wall", "[limits]\nwall = '1m'\n", `tools.bash.timeout: is more than the longest that a call may take (limits.wall, 1m0s)`},
		{"two walls", "[limits]\nwall = '5m'\n[tools.bash]\nmax_timeout = '6m'\n", `x.toml:4: tools.bash.max_timeout: is limits.wall by its other name, and that is 5m0s: set one of them`},
		{"shell", "[tools.bash]\nshell = ['/usr/bin/fish']\n", `x.toml:2: tools.bash.shell: fish does not speak the language of sh that agents write: use bash`},
		{"no shell", "[tools.bash]\nshell = []\n", `x.toml:2: tools.bash.shell: must name a shell`},
		{"no admin", "[admin]\nuids = []\n", `x.toml:2: admin.uids: nobody would be an admin: name at least one uid or gid`},
		{"uid in two tenants", "[tenant.a]\nuids = [7]\n[tenant.b]\nuids = [7]\n", `x.toml:4: tenant.b.uids: 7 belongs to the tenant "a" already`},
		{"admin in a tenant", "[tenant.a]\nuids = [0]\n", `x.toml:2: tenant.a.uids: 0 belongs to the tenant "default" already`},
		{"admins' group in a tenant", "[admin]\ngids = [5]\n[tenant.a]\ngids = [5]\n", `x.toml:4: tenant.a.gids: 5 belongs to the tenant "default" already`},
		{"uid twice", "[tenant.a]\nuids = [7, 7]\n", `x.toml:2: tenant.a.uids: 7 stands here twice`},
		{"gid in two tenants", "[tenant.a]\ngids = [7]\n[tenant.b]\ngids = [7]\n", `x.toml:4: tenant.b.gids: 7 belongs to the tenant "a" already`},
		{"tenant of nobody", "[tenant.a]\nweight = 2\n", `x.toml:1: tenant.a: has neither uids nor gids: nobody could be in it`},
		{"tenant's name", "[tenant.'A/b']\nuids = [7]\n", `x.toml:1: tenant."A/b": a tenant's name is 1 to 63 of a-z, 0-9, _ and -, and begins with a letter or digit`},
		{"tenant above the ceiling", "[tenant.a]\nuids = [7]\n[tenant.a.limits]\npids = 9999\n", `x.toml:4: tenant.a.limits.pids: is more than limits.max.pids (4096), which no tenant may exceed`},
		{"tenant's maximum above the maximum", "[tenant.a]\nuids = [7]\n[tenant.a.limits.max]\nwall = '3h'\n", `x.toml:4: tenant.a.limits.max.wall: is more than limits.max.wall (2h0m0s), which no tenant may exceed`},
		{"tenant above its maximum", "[tenant.a]\nuids = [7]\n[tenant.a.limits]\npids = 99\n[tenant.a.limits.max]\npids = 98\n", `x.toml:4: tenant.a.limits.pids: is more than a session may ask for (tenant.a.limits.max.pids, 98)`},
		{"limit above its maximum", "[limits]\nmemory = '4GiB'\n[limits.max]\nmemory = '3GiB'\n", `x.toml:2: limits.memory: is more than a session may ask for (limits.max.memory, 3GiB)`},
		{"maximum below all sense", "[limits.max]\npids = 2\n", `x.toml:2: limits.max.pids: must be at least 16`},
		{"no such maximum", "[limits.max]\njobs = 2\n", `x.toml:2: unknown key limits.max.jobs: remove it`},
		{"negative quota", "[tenant.a]\nuids = [7]\nmax_calls = -1\n", `x.toml:3: tenant.a.max_calls: must not be negative`},
		{
			"profile's truncation", "[profile.x.truncate]\nmax_lines = -1\nmax_bytes = 5\ndirection = 'up'\n",
			"x.toml:2: profile.x.truncate.max_lines: must be at least 1\nx.toml:3: profile.x.truncate.max_bytes: must be at least 1024\n" +
				`x.toml:4: profile.x.truncate.direction: "up" is not one of "auto", "head", "tail", "both"`,
		},
		{
			"profile's key", "[profile.x]\npermissions = {}\n[profile.x.truncate]\nspill_file = 1\n",
			"x.toml:2: unknown key profile.x.permissions: did you mean permission?\nx.toml:4: unknown key profile.x.truncate.spill_file: remove it",
		},
		{"threshold", "[doom_loop]\nthreshold = 1\n", `x.toml:2: doom_loop.threshold: 1 is not between 2 and 200`},
		{"polling below", "[doom_loop]\npolling_threshold = 2\n", `x.toml:2: doom_loop.polling_threshold: 2 is not between threshold (3) and 200`},
		{"period", "[doom_loop]\nmax_period = 99\n", `x.toml:2: doom_loop.max_period: 99 is not between 1 and 16`},
		{"hard limit", "[doom_loop]\nhard_limit = 2\n", `x.toml:2: doom_loop.hard_limit: 2 is neither 0 (off) nor between threshold (3) and 200`},
		{"more than is remembered", "[doom_loop]\nhard_limit = 200\n", `x.toml:1: doom_loop.max_period: this many repeats of cycles this long are 800 calls, but sessions remember only 512: lower it or the thresholds`},
		{"no time to answer", "[approvals]\ntimeout = '0s'\n", `x.toml:2: approvals.timeout: 0s is not between "1s" and "7d"`},
		{"no time to wait", "[mcp_server]\nwait = '0s'\n", `x.toml:2: mcp_server.wait: 0s is not between "1s" and "1h"`},
		{"approver", "[approvals]\napprover = 'me'\n", `x.toml:2: approvals.approver: "me" is not one of "any", "none"`},
		{"approval program", "[approvals]\ncommand = ['yes']\n", `x.toml:2: approvals.command: "yes" is not the absolute path of a program`},
		{"nobody asked", "[approvals]\napprover = 'none'\ncommand = ['/bin/yes']\n", `x.toml:3: approvals.command: would never be asked with approver = "none": remove one of them`},
		{"audit mode", "[audit]\nmode = 'Strict'\n", `x.toml:2: audit.mode: "Strict" is not one of "strict", "lenient"`},
		{"audit path", "[audit]\npath = 'audit.log'\n", `x.toml:2: audit.path: "audit.log" is not an absolute path`},
		{"rotate", "[audit]\nrotate = 10\n", `x.toml:2: audit.rotate: must be at least 1MiB`},
		{"opaque", "[tools.bash]\nopaque = 'allow'\n", `x.toml:2: tools.bash.opaque: "allow" is not one of "rule", "ask", "deny"`},
		{"one hook", "[hook]\non = 'call.before'\n", `x.toml:1: hook is an array of tables: write [[hook]]`},
		{"hook of nothing", "[[hook]]\non = 'call.before'\n", `x.toml:1: hook.1.command: must name a program`},
		{"second hook", "[[hook]]\non = 'call.after'\ncommand = ['/x']\n[[hook]]\non = 'call.during'\ncommand = ['/x']\n", `x.toml:5: hook.2.on: "call.during" is not one of "call.after", "call.before", "file.edited", "session.created", "session.ended"`},
		{"hook's program", "[[hook]]\non = 'session.ended'\ncommand = ['x', \"a\\u0000\"]\n", "x.toml:3: hook.1.command: \"a\\x00\" has a NUL byte\nx.toml:3: hook.1.command: \"x\" is not the absolute path of a program"},
		{"hook's match", "[[hook]]\non = 'session.ended'\ncommand = ['/x']\n[hook.match]\ntool = 'bash'\n", `x.toml:5: hook.1.match.tool: a hook on session.ended can match "profile", "tenant" only`},
		{"hook's match is text", "[[hook]]\non = 'call.after'\ncommand = ['/x']\nmatch = { tool = 1 }\n", `x.toml:4: hook.1.match.tool: want a string, not 1`},
		{"hook's failure", "[[hook]]\non = 'call.after'\ncommand = ['/x']\nfail = 'soft'\ntimeout = '1h'\n", "x.toml:4: hook.1.fail: \"soft\" is not one of \"closed\", \"open\"\nx.toml:5: hook.1.timeout: 1h0m0s is not between 0 (10 s) and \"10m\""},
		{"hook's key", "[[hook]]\nevent = 'call.after'\ncommand = ['/x']\non = 'call.after'\n", `x.toml:2: unknown key hook.1.event: remove it`},
		{"too deep", "[daemon]\nx" + strings.Repeat(".x", 30000) + " = 1\n", `x.toml:2: is nested more than 16 deep: remove what is deeper`},
		{"syntax alone", "[daemon]\nlog = 'xml'\nx = = 1\n", `x.toml:3: expected value but found '=' instead`},
		{"duplicate key", "[daemon]\nlog = 'json'\nlog = 'text'\n", `x.toml:3: Key 'daemon.log' has already been defined.`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("x.toml", []byte(tt.doc))
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := Parse("x.toml", []byte("[limits]\npids = 1\nCPUs = 2\nmemory = true\n[daemon]\nlog = 'xml'\n[mcp]\nx = 'ask'\n"))
	var lines []int
	for _, p := range tomltext.Problems(err) {
		lines = append(lines, p.Line)
	}
	if want := []int{2, 3, 4, 6, 7}; !slices.Equal(lines, want) {
		t.Errorf("problems on lines %v, want %v:\n%v", lines, want, err)
	}
}

// TestPolicyIsReadWithTheRest: its problems stand among the others, and its rules
// are those of the settings.
func TestPolicyIsReadWithTheRest(t *testing.T) {
	_, err := Parse("x.toml", []byte("[permission]\nBash = 'ask'\n[daemon]\nlog = 'xml'\n[permission.edit]\na.b = 'deny'\n"))
	var lines []int
	for _, p := range tomltext.Problems(err) {
		lines = append(lines, p.Line)
	}
	if want := []int{2, 4, 6}; !slices.Equal(lines, want) {
		t.Errorf("problems on lines %v, want %v:\n%v", lines, want, err)
	}
	_, err = Parse("x.toml", []byte("[permission.bash]\n'git push *' = 'allow'\n[[test]]\ntool = 'bash'\ninput = { command = 'git push' }\nexpect = 'deny'\n"))
	if want := `x.toml:3: test: bash {"command":"git push"} is allow by x.toml:2 (bash "git push *"), want deny`; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	c, err := Parse("x.toml", []byte("tenant.a = { uids = [7], permission = { bash = 'deny' }, profiles = ['plan'] }\n"))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := c.Policy.Stack("plan", "a"); err != nil || !st.Hidden("bash") {
		t.Errorf("bash is not denied: %v", err)
	}
	if _, err := c.Policy.Stack("build", "a"); err == nil {
		t.Error("tenant a may use the profile build")
	}
}

// TestPolicyKnowsAllSections: a rules file alone may be a whole configuration.
func TestPolicyKnowsAllSections(t *testing.T) {
	sections := append(keysOf(reflect.TypeFor[Config]()), "tenant")
	for _, s := range sections {
		if s != "tenant" && s != "profile" && !slices.Contains(policy.Sections, s) {
			t.Errorf("policy does not know the section %s", s)
		}
	}
}

func TestAuditPath(t *testing.T) {
	c := Default()
	c.Daemon.StateDir = "/srv/state"
	if got := c.AuditPath(); got != "/srv/state/audit/audit.jsonl" {
		t.Errorf("got %s", got)
	}
	c.Audit.Path = "/var/log/toold.jsonl"
	if got := c.AuditPath(); got != "/var/log/toold.jsonl" {
		t.Errorf("got %s", got)
	}
}

// TestUnknownIsRefused: nothing that this version does not have may be ignored.
func TestUnknownIsRefused(t *testing.T) {
	for _, key := range []string{
		"daemon.debug_listen", "sandbox.pool", "limits.jobs", "network.allow", "tools.bash.env", "tools.webfetch", "mcp", "tenant.bash.limits.jobs",
	} {
		_, err := Parse("x.toml", []byte("tenant.bash.uids = [5]\n"+key+" = 1\n"))
		if err == nil || !strings.Contains(err.Error(), "x.toml:2: unknown key "+key+":") {
			t.Errorf("%s: got %v", key, err)
		}
	}
}

func TestOverrides(t *testing.T) {
	c, err := Parse("x.toml", []byte("[limits]\nmemory = '1GiB'\ntmp = '64MiB'\n"),
		Override{"limits.memory", "4GiB", "TOOLD_LIMITS_MEMORY"},
		Override{"limits.memory", "3GiB", "--memory"},
		Override{"worktrees.roots", "/srv, /home", "TOOLD_WORKTREES_ROOTS"},
		Override{"admin.uids", "0,5", "TOOLD_ADMIN_UIDS"},
		Override{"admin.gids", "", "TOOLD_ADMIN_GIDS"},
		Override{"tools.edit.require_read", "true", "TOOLD_TOOLS_EDIT_REQUIRE_READ"},
		Override{"limits.cpus", "1.5", "TOOLD_LIMITS_CPUS"},
		Override{"limits.pids", "99", "TOOLD_LIMITS_PIDS"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Limits.Memory != 3<<30 || c.Limits.CPUs != 1.5 || c.Limits.PIDs != 99 || !c.Tools.Edit.RequireRead ||
		!slices.Equal(c.Worktrees.Roots, []string{"/srv", "/home"}) || !slices.Equal(c.Admin.UIDs, []uint32{0, 5}) || len(c.Admin.GIDs) != 0 {
		t.Errorf("got %+v", c)
	}
}

func TestOverrideProblems(t *testing.T) {
	for _, tt := range []struct{ key, value, want string }{
		{"daemon.log", "xml", `--flag: daemon.log: "xml" is not one of "auto", "json", "text"`},
		{"limits.pids", "many", `--flag: limits.pids: want a whole number, not "many"`},
		{"limits.cpus", "many", `--flag: limits.cpus: want a number, not "many"`},
		{"limits.wall", "30", `--flag: limits.wall: 30 what? write 30s`},
		{"tools.edit.require_read", "yes", `--flag: tools.edit.require_read: want true or false, not "yes"`},
		{"admin.uids", "0,root", `--flag: admin.uids: want a whole number, not "root"`},
		{"tenant.x", "1", `--flag: unknown key tenant.x`},
		{"limits.jobs", "1", `--flag: unknown key limits.jobs`},
		{"limits.disk", "1MiB", `--flag: limits.disk: must be at least 16MiB`},
	} {
		_, err := Parse("x.toml", nil, Override{tt.key, tt.value, "--flag"})
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s=%s:\ngot  %v\nwant %s", tt.key, tt.value, err, tt.want)
		}
	}
}

func TestFromEnv(t *testing.T) {
	got, warned, err := FromEnv([]string{
		"HOME=/root", "TOOLD_LIMITS_OPEN_FILES=100", "TOOLD_SOCKET=/x", "TOOLD_TOKEN=x", "TOOLD_TEST_REQUIRE=oci",
		"TOOLD_SERVICE_HOST=10.0.0.1", "TOOLD_SERVICE_PORT_METRICS=9464", "TOOLD_PORT=tcp://10.0.0.1:9464", "TOOLD_PORT_9464_TCP_ADDR=10.0.0.1",
		"TOOLD_METRICS_SERVICE_HOST=10.0.0.1", "TOOLD_AUDIT_LOG_SERVICE_PORT=1", "TOOLD_METRICS_PORT=tcp://10.0.0.1:9464",
		"TOOLD_METRICS_PORT_9464_TCP=tcp://10.0.0.1:9464", "TOOLD_METRICS_PORT_9464_TCP_PROTO=tcp", "TOOLD_LIMITS_PORT_53_UDP_ADDR=10.0.0.1",
		"TOOLD_WORKTREES=/srv", "TOOLD_SERVICE_NAME=x", "TOOLD_XYZZY=1",
	})
	want := []Override{{"limits.open_files", "100", "TOOLD_LIMITS_OPEN_FILES"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if len(warned) != 2 || warned[0].Source != "TOOLD_SERVICE_NAME" || warned[1].Source != "TOOLD_XYZZY" {
		t.Errorf("warned of %v", warned)
	}
	for bad, says := range map[string]string{
		"TOOLD_DAEMON_SOKCET": "no setting of [daemon] has", "TOOLD_PERMISSION_BASH": "no setting of [permission] has",
		"TOOLD_TENANT_A_UIDS": "no setting of [tenant] has", "TOOLD_LIMITS_JOBS": "no setting of [limits] has",
		"TOOLD_LIMIT_MEMORY": "did you mean TOOLD_LIMITS_MEMORY?", "TOOLD_LIMITSMEMORY": "did you mean TOOLD_LIMITS_MEMORY?",
		"TOOLD_limits_memory": "did you mean TOOLD_LIMITS_MEMORY?", "TOOLD_SANDBOXRUNTIME": "did you mean TOOLD_SANDBOX_RUNTIME?",
		"TOOLD_METRICS_PORT": "no setting of [metrics] has", "TOOLD_METRICS_SERVICE": "no setting of [metrics] has",
		"TOOLD_LIMIT_JOBS": "did you mean one of [limits]?", "TOOLD_WORKTREE_WHAT": "did you mean one of [worktrees]?",
	} {
		if _, _, err := FromEnv([]string{bad + "=x"}); err == nil || !strings.HasPrefix(err.Error(), bad+": no setting ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", bad, err, says)
		}
	}
}

// TestMisspelledVariables: a variable that is one letter away from a setting's is refused, whichever.
func TestMisspelledVariables(t *testing.T) {
	for _, key := range Keys() {
		name := EnvName(key)
		for i := len(envPrefix); i < len(name); i++ {
			wrong := name[:i] + name[i+1:]
			if slices.ContainsFunc(Keys(), func(k string) bool { return EnvName(k) == wrong }) || foreign.MatchString(wrong) {
				continue
			}
			if _, _, err := FromEnv([]string{wrong + "=x"}); err == nil {
				t.Errorf("%s for %s is taken, or left out in silence", wrong, name)
			}
		}
	}
}

// TestForeignKeys: each key of another system that is known is none of ours, and is refused with what to write.
func TestForeignKeys(t *testing.T) {
	for key, hint := range foreignKeys {
		if slices.Contains(Keys(), key) {
			t.Errorf("%s is a key of ours", key)
		}
		path := strings.Split(key, ".")
		text := path[0] + " = 1\n"
		if len(path) == 2 {
			text = "[" + path[0] + "]\n" + path[1] + " = 1\n"
		}
		if _, err := Parse("x.toml", []byte(text)); err == nil || !strings.Contains(err.Error(), "unknown key "+key+": "+hint) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestEnvNamesAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, k := range Keys() {
		if other, ok := seen[EnvName(k)]; ok {
			t.Errorf("%s and %s are both %s", k, other, EnvName(k))
		}
		seen[EnvName(k)] = k
	}
}

func TestLoadRefusesFilesThatOthersWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(path, []byte("[limits]\npids = 100\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil || c.Limits.PIDs != 100 {
		t.Fatalf("got %+v, %v", c, err)
	}
	for _, mode := range []os.FileMode{0o620, 0o602, 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "can be written by others") {
			t.Errorf("mode %04o: got %v", mode, err)
		}
	}
	if os.Geteuid() == 0 {
		os.Chmod(path, 0o600)
		if err := os.Chown(path, 4711, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
			t.Errorf("owner 4711: got %v", err)
		}
	}
}

func TestLoadRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "absent.toml")); err == nil {
		t.Error("a named file that is absent was accepted")
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: got %v", err)
	}
	if _, err := Load("/dev/zero"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a device: got %v", err)
	}
	big := filepath.Join(dir, "big.toml")
	if err := os.WriteFile(big, bytes.Repeat([]byte("#"), maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a big file: got %v", err)
	}
}

// FuzzParse: whatever the bytes are, the answer is settings that are valid, or
// problems that each say something, and the same ones the second time.
func FuzzParse(f *testing.F) {
	doc, err := os.ReadFile("../../config.toml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(doc)
	f.Add([]byte("[tenant.a]\nuids=[1]\n[[rule]]\nx={a={b=[{c=1}]}}\n"))
	f.Add([]byte("limits={memory=\"1GiB\",\nwall=1}"))
	f.Add([]byte("\"a\\u0000b\".c=1\n[a.b]\n[[a.c]]"))
	f.Add([]byte("\"\".c=1"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		c, err := Parse("f", doc)
		if err == nil {
			if err := tomltext.Join(c.problems()); err != nil {
				t.Fatalf("accepted, then refused: %v", err)
			}
			return
		}
		problems := tomltext.Problems(err)
		if len(problems) == 0 {
			t.Fatalf("an error without problems: %v", err)
		}
		for _, p := range problems {
			if p.Message == "" {
				t.Fatalf("a problem without words: %+v", p)
			}
		}
		if _, again := Parse("f", doc); again == nil || again.Error() != err.Error() {
			t.Fatalf("first %v\nthen %v", err, again)
		}
	})
}

// The examples are configurations that a daemon takes.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	rulesets, err := filepath.Glob("../../examples/rulesets/*.toml")
	if err != nil || len(rulesets) == 0 {
		t.Fatalf("no rulesets: %v", err)
	}
	files = append(files, rulesets...)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		// A copy of our own: the mode of a checkout depends on the umask.
		name := filepath.Join(t.TempDir(), filepath.Base(f))
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(name)
		if err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		for _, w := range c.Policy.Warnings() {
			t.Errorf("%s: %v", f, w)
		}
	}
}

func TestMetricsMayListenAtAName(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:9477", "[::1]:9477", "localhost:9477", "toold:9477", ""} {
		c := Default()
		c.Metrics.Listen = listen
		if err := tomltext.Join(c.problems()); err != nil {
			t.Errorf("%q: %v", listen, err)
		}
	}
}

// TestKeepStarted: a reload takes over all but what only a start can change.
func TestKeepStarted(t *testing.T) {
	old, changed := Default(), Default()
	for _, key := range startKeys {
		if v := changed.setting(key); !v.IsValid() || !slices.Contains(Keys(), key) {
			t.Errorf("%s is no setting", key)
		}
	}
	changed.Daemon.Socket, changed.Daemon.Retention, changed.Sandbox.HostPaths = "/x", 1, []string{"/y"}
	changed.Sandbox.RequireImage = true
	if got := changed.KeepStarted(old); !slices.Equal(got, []string{"daemon.socket", "sandbox.host_paths"}) {
		t.Errorf("differ: %q", got)
	}
	old.Daemon.Retention, old.Sandbox.RequireImage = 1, true
	if !reflect.DeepEqual(changed, old) { //nolint:govet // neither has rules with errors in them
		t.Errorf("got %+v\nwant %+v", changed, old)
	}
}
