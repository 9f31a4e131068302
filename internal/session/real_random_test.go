package session

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// workScript makes changes below the directory that it is given, one a line of its input, and
// says how each ended. It is the same for a session and for a plain directory; its rename is
// rename(2).
const workScript = `
chdir shift or die; $| = 1;
while (<STDIN>) {
  chomp; my ($kind, $from, $to, $n) = split /\t/; my $ok; $! = 0;
  if ($kind eq 'rename') { $ok = rename $from, $to }
  elsif ($kind eq 'mkdir') { $ok = mkdir $from, 0755 }
  elsif ($kind eq 'rmdir') { $ok = rmdir $from }
  elsif ($kind eq 'unlink') { $ok = !-d $from || -l $from ? unlink $from : 0 }
  elsif ($kind eq 'symlink') { $ok = symlink $to, $from }
  elsif ($kind eq 'chmod') { $ok = -l $from ? 0 : chmod(-d $from ? 0755 : $n % 2 ? 0755 : 0644, $from) }
  else { $ok = 0; if (!-l $from && open my $f, $kind eq 'append' ? '>>' : '>', $from) { print $f "line $n\n" x ($n % 50); $ok = close $f } }
  print $kind, ' ', ($ok ? 'ok' : $! + 0), "\n";
}`

// listScript shows all that is below a directory.
const listScript = `
use File::Find; use Digest::MD5 'md5_hex'; chdir shift or die; my @all;
find({no_chdir => 1, wanted => sub {
  my @s = lstat $_; my $what = sprintf '%o', $s[2];
  if (-l $_) { $what = 'link ' . readlink $_ }
  elsif (-f _) { open my $f, '<', $_ or die; local $/; $what .= ' ' . md5_hex(<$f> // '') }
  push @all, "$_\t$what\n";
}}, '.'); print sort @all;`

// randomWork is a line of changes to one of several trees.
func randomWork(r *rand.Rand, tree string) string {
	name := func() string {
		p := tree
		for range 1 + r.IntN(3) {
			p = path.Join(p, string(rune('a'+r.IntN(4))))
		}
		return p
	}
	kinds := []string{"rename", "rename", "rename", "mkdir", "mkdir", "write", "write", "write", "append", "unlink", "rmdir", "symlink", "chmod"}
	return fmt.Sprintf("%s\t%s\t%s\t%d\n", kinds[r.IntN(len(kinds))], name(), name(), r.IntN(10000))
}

func perl(t *testing.T, script, dir, in string) string {
	t.Helper()
	cmd := exec.Command("perl", "-e", script, dir)
	cmd.Stdin, cmd.Stderr = strings.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestRealRandomTrees: random trees in one worktree of a session, and in a plain directory
// beside it, are the same after each of: changes, a checkpoint, a restore, a fork; and so are a
// copy of the source with the patch, and the source with the changes applied, but for what a
// patch cannot say.
func TestRealRandomTrees(t *testing.T) {
	const together = 40
	a := newApplyRig(t)
	rounds := testrig.Rounds(5)
	for round := range rounds {
		a.randomRound(uint64(round), together)
	}
	t.Logf("%d trees, seeds 0 to %d", rounds*together, rounds-1)
}

func (a *applyRig) randomRound(seed uint64, together int) {
	t := a.t
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 11))
	base, err := os.MkdirTemp(t.TempDir(), "")
	a.must(err)
	defer os.RemoveAll(base)
	run := func(script string, args ...string) {
		t.Helper()
		if out, err := exec.Command("sh", append([]string{"-ec", script, "sh"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("seed %d: %v: %s", seed, err, out)
		}
	}
	work := func(n int) string {
		var b strings.Builder
		for tree := range together {
			for range 1 + r.IntN(n) {
				b.WriteString(randomWork(r, fmt.Sprintf("t%d", tree)))
			}
		}
		return b.String()
	}
	plain, patched, states := base+"/plain", base+"/patched", []string{}
	a.must(os.Mkdir(plain, 0o755))
	for tree := range together {
		a.must(os.Mkdir(fmt.Sprintf("%s/t%d", plain, tree), 0o755))
	}
	perl(t, workScript, plain, work(30))
	a.must(os.RemoveAll(a.src))
	run(`cp -a "$1" "$2"; cp -a "$1" "$3"; chown -R "$4" "$2"`, plain, a.src, patched, fmt.Sprint(alice.UID, ":", alice.GID))
	id := a.session("")
	session := func(id, script, in string) string {
		t.Helper()
		if in != "" {
			up, err := a.m.Files.Upload(t.Context(), alice, id, "/tmp/in", 0o600, strings.NewReader(in))
			if err != nil || up.IsError {
				t.Fatalf("%+v, %v", up, err)
			}
		}
		up, err := a.m.Files.Upload(t.Context(), alice, id, "/tmp/script", 0o600, strings.NewReader(script))
		if err != nil || up.IsError {
			t.Fatalf("%+v, %v", up, err)
		}
		if c := realCall(t, a.m, id, "bash", object{"command": "touch /tmp/in; perl /tmp/script . </tmp/in >/tmp/out"}); c.IsError || c.Error != nil {
			t.Fatalf("seed %d: %+v", seed, c)
		}
		body, _, err := a.m.Files.Download(t.Context(), alice, id, "/tmp/out")
		a.must(err)
		defer body.Close()
		out, err := io.ReadAll(body)
		a.must(err)
		return string(out)
	}
	same := func(when, got, want string) {
		t.Helper()
		if got != want {
			g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
			for i := range min(len(g), len(w)) {
				if g[i] != w[i] {
					t.Fatalf("seed %d, %s: %q, plainly %q", seed, when, g[i], w[i])
				}
			}
			t.Fatalf("seed %d, %s: %d lines, plainly %d", seed, when, len(g), len(w))
		}
	}
	for i := range 2 + r.IntN(4) {
		in := work(12)
		same("outcomes", session(id, workScript, in), perl(t, workScript, plain, in))
		same("changed", session(id, listScript, ""), perl(t, listScript, plain, ""))
		c, err := a.m.trees.Checkpoint(t.Context(), owner, id, client.CheckpointCreate{})
		a.must(err)
		states = append(states, c.ID)
		run(`cp -a "$1" "$2"`, plain, fmt.Sprintf("%s/%d", base, i))
	}
	n := r.IntN(len(states))
	at, then := states[n], fmt.Sprintf("%s/%d", base, n)
	fork, err := a.m.trees.Fork(t.Context(), owner, id, client.ForkRequest{At: at})
	a.must(err)
	same("forked", session(fork.ID, listScript, ""), perl(t, listScript, then, ""))
	a.end(fork.ID)
	_, err = a.m.trees.Restore(t.Context(), owner, id, client.RestoreRequest{Checkpoint: at})
	a.must(err)
	run(`rm -rf "$1"; cp -a "$2" "$1"`, plain, then)
	same("restored", session(id, listScript, ""), perl(t, listScript, plain, ""))
	in := work(12)
	same("outcomes after a restore", session(id, workScript, in), perl(t, workScript, plain, in))

	const files = `find "$1" -mindepth 1 -depth -type d -empty -delete`
	run(files, patched) // they are in git's way where a file takes their place
	body, err := a.m.trees.Diff(t.Context(), owner, id, client.DiffQuery{})
	a.must(err)
	patch, err := io.ReadAll(body)
	a.must(err)
	a.must(body.Close())
	if len(patch) > 0 {
		cmd := exec.Command("git", "apply", "--binary", "--whitespace=nowarn")
		cmd.Dir, cmd.Stdin = patched, bytes.NewReader(patch)
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(patched))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("seed %d: git apply: %v: %s", seed, err, out)
		}
	}
	a.apply(id, client.ApplyRequest{})
	want := perl(t, listScript, plain, "")
	same("applied", perl(t, listScript, a.src, ""), want)
	same("seen after the apply", session(id, listScript, ""), want)
	if got := a.changed(id); got != nil {
		t.Errorf("seed %d: after the apply %q are changed", seed, got)
	}
	run(files, patched)
	run(files, plain)
	same("patched", perl(t, listScript, patched, ""), perl(t, listScript, plain, ""))
	if a.end(id) {
		a.must(a.m.trees.Forget(t.Context(), id)) // checkpoints
	}
}
