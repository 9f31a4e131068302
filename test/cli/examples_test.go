package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// ciStep is one script of a job.
type ciStep struct {
	script string
	always bool // also after a failure
}

func example(t *testing.T, name string, into any) []byte {
	t.Helper()
	text, err := os.ReadFile("../../examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if into != nil {
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	return text
}

func githubSteps(t *testing.T) []ciStep {
	var file struct {
		Jobs map[string]struct {
			Steps []struct {
				Run, If string
			}
		}
	}
	example(t, "github-actions.yml", &file)
	var steps []ciStep
	for _, s := range file.Jobs["task"].Steps {
		if s.Run != "" {
			steps = append(steps, ciStep{script: s.Run, always: s.If == "always()"})
		}
	}
	if len(steps) != 2 {
		t.Fatalf("%d steps", len(steps))
	}
	return steps
}

func gitlabSteps(t *testing.T) []ciStep {
	var file map[string]struct {
		Script      []string
		AfterScript []string `yaml:"after_script"`
	}
	example(t, "gitlab-ci.yml", &file)
	job := file["agent-task"]
	if len(job.Script) != 2 || len(job.AfterScript) != 2 {
		t.Fatalf("%+v", job)
	}
	return []ciStep{{script: strings.Join(job.Script, "\n")}, {script: strings.Join(job.AfterScript, "\n"), always: true}}
}

// The user and the group of ci-runner.toml: any that nothing here belongs to.
const runnerUID, runnerGID, socketGID = 998, 998, 100

// asRunner starts a program as the runner's user.
func asRunner() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: runnerUID, Gid: runnerGID, Groups: []uint32{socketGID}}}
}

// runner is a CI machine's: a daemon with examples/ci-runner.toml, and a user.
type runner struct {
	*rig
	t    *testing.T
	work string // the root of ci-runner.toml
}

func newRunner(t *testing.T, appended ...string) *runner {
	if why != "" {
		t.Skip(why)
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	r, err := openRig()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.close(t) })
	c := &runner{rig: r, t: t, work: filepath.Join(r.dir, "work")}
	config := string(example(t, "ci-runner.toml", nil))
	for from, to := range map[string]string{`"/srv/runner/work"`: fmt.Sprintf("%q", c.work), `"toold"`: `"users"`} {
		if !strings.Contains(config, from) {
			t.Fatalf("ci-runner.toml has no %s", from)
		}
		config = strings.ReplaceAll(config, from, to)
	}
	for _, name := range appended {
		config += "\n" + string(example(t, name, nil))
	}
	config += "\n[sandbox]\ndisk_overcommit = 1000\n" // many jobs at once, on whatever disk the tests have
	file := filepath.Join(r.dir, "config.toml")
	err = errors.Join(os.Chmod(r.dir, 0o711), os.WriteFile(file, []byte(config), 0o600), os.Mkdir(c.work, 0o755), os.Chown(c.work, runnerUID, runnerGID))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.start([]string{"--config", file}); err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs a script as the runner's user; env is added to what a job has anyway.
func (r *runner) run(dir, script string, env ...string) (stderr string, exit int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", script)
	cmd.WaitDelay = time.Second // what is left may hold the pipes
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + programs + ":" + os.Getenv("PATH"), "HOME=" + r.work, "TOOLD_SOCKET=" + r.socket, "GITHUB_STEP_SUMMARY=" + r.work + "/summary.md",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
	}, env...)
	cmd.SysProcAttr = asRunner()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ee, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		r.t.Fatal(err)
	} else if ok {
		exit = ee.ExitCode()
	}
	r.t.Logf("%s\n%s%s(exit %d)", script, out.String(), errs.String(), exit)
	return errs.String(), exit
}

// job is one run of a job: a checkout, and what its directories are called.
type job struct {
	*runner
	checkout, temp, canary string
	stderr                 string // of all that ran
	exit                   int    // the first failure
}

// newJob makes the checkout as CI does, of a repository with this task.
func (r *runner) newJob(task trap) *job {
	t := r.t
	t.Helper()
	dir, err := os.MkdirTemp(r.work, "job-")
	if err != nil {
		t.Fatal(err)
	}
	j := &job{runner: r, checkout: dir + "/checkout", temp: dir + "/temp", canary: dir + "/canary"}
	script := fmt.Sprintf("#!/bin/bash\nexport GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b\n"+
		"FIRE='touch %s/fired /workspace/fired'\necho done >result\n%s\n", j.canary, task.plant)
	for _, d := range []string{dir, j.checkout, j.temp, j.canary} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err = errors.Join(
		os.WriteFile(j.checkout+"/task.sh", []byte(script), 0o755), os.WriteFile(j.checkout+"/file", []byte("text\n"), 0o644),
		filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(p, runnerUID, runnerGID))
		}))
	if err != nil {
		t.Fatal(err)
	}
	if _, exit := r.run(j.checkout, "git init -q; git add .; git commit -qm first"); exit != 0 {
		t.Fatal("no checkout")
	}
	return j
}

// play runs the steps of a job as CI does.
func (j *job) play(steps []ciStep, env ...string) {
	j.t.Helper()
	for _, s := range steps {
		if j.exit != 0 && !s.always {
			continue
		}
		stderr, exit := j.run(j.checkout, s.script, env...)
		j.stderr += stderr
		if j.exit == 0 {
			j.exit = exit
		}
	}
}

// snapshot is every file of a directory, as far as git could be led by it.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text += string(b)
		}
		files[strings.TrimPrefix(p, dir)] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// check says whether a job held: nothing has fired on the host, the checkout is as it
// was, the warning names the files, and there is a patch.
func (j *job) check(task trap, before map[string]string, patch string) {
	j.t.Helper()
	if _, err := os.Lstat(j.canary + "/fired"); !errors.Is(err, fs.ErrNotExist) {
		j.t.Errorf("the trap has fired on the host (%v)", err)
	}
	after := snapshot(j.t, j.checkout)
	delete(after, strings.TrimPrefix(patch, j.checkout))
	maps.DeleteFunc(after, func(name, _ string) bool { return name == "/report" || strings.HasPrefix(name, "/report/") })
	for _, dir := range []string{j.temp + "/report", j.checkout + "/report"} {
		if _, err := os.Stat(dir); err == nil {
			for _, name := range []string{"result.json", "junit.xml", "log.txt", "changes.patch"} {
				if _, err := os.Stat(dir + "/" + name); err != nil {
					j.t.Error(err)
				}
			}
		}
	}
	for _, name := range sortedKeys(before, after) {
		if before[name] != after[name] {
			j.t.Errorf("the checkout's %s is another", name)
		}
	}
	for _, name := range task.warned {
		if !ofGit(name) && !warns(j.stderr, name) {
			j.t.Errorf("no warning names %s", name)
		}
	}
	text, err := os.ReadFile(patch)
	if err != nil {
		j.t.Fatal(err)
	}
	if j.exit != 0 {
		j.t.Errorf("exit %d", j.exit)
	}
	if !strings.Contains(string(text), "+++ b/result\n") {
		j.t.Errorf("the patch does not have what the task did:\n%s", text)
	}
}

func sortedKeys(maps ...map[string]string) []string {
	var keys []string
	for _, m := range maps {
		for k := range m {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// The jobs as they are shipped, line by line, with a task that lays traps for programs
// of the host. That each fires where it is in place, TestTraps shows.
func TestExampleJobs(t *testing.T) {
	r := newRunner(t)
	steps := githubSteps(t)
	for _, task := range traps {
		t.Run(task.name, func(t *testing.T) {
			r := &runner{rig: r.rig, t: t, work: r.work}
			j := r.newJob(task)
			before := snapshot(t, j.checkout)
			j.play(steps, "RUNNER_TEMP="+j.temp)
			j.check(task, before, j.temp+"/changes.patch")
			if list := r.toolctl(t, "session", "list", "--all", "-o", "json"); strings.Contains(list, "kept_until") {
				t.Error("the daemon keeps changes of the job")
			}
			if b, err := os.ReadFile(r.work + "/summary.md"); err != nil || !strings.Contains(string(b), "### toolctl: exit code 0") {
				t.Errorf("the summary of the job is %q, %v", b, err)
			}
		})
	}
}

// withRules runs a test on a machine with ci-runner.toml, and on one with the rules that it names
// appended.
func withRules(t *testing.T, do func(t *testing.T, r *runner)) {
	t.Run("no rules", func(t *testing.T) { do(t, newRunner(t)) })
	t.Run("rulesets", func(t *testing.T) { do(t, newRunner(t, "rulesets/ci.toml")) })
}

// platform is a CI system: its shipped task, and what a job of it has.
type platform struct {
	name  string
	steps func(*testing.T) []ciStep
	env   func(*job) []string
	patch func(*job) string
}

var platforms = []platform{
	{
		"github", githubSteps, func(j *job) []string { return []string{"RUNNER_TEMP=" + j.temp, "BASE=origin/base"} },
		func(j *job) string { return j.temp + "/changes.patch" },
	},
	{
		"gitlab", gitlabSteps, func(j *job) []string {
			return []string{"CI_BUILDS_DIR=" + j.temp, "CI_JOB_ID=7", "CI_DEFAULT_BRANCH=base"}
		},
		func(j *job) string { return j.checkout + "/changes.patch" },
	},
}

// TestExampleJobsEverywhere: the task of each platform, on a machine with and without the rules that are
// shipped for it, that succeeds, fails, and has a project file in its base and another in its change,
// beside files of the change that have the names of the job's artifacts.
func TestExampleJobsEverywhere(t *testing.T) {
	withRules(t, func(t *testing.T, r *runner) {
		for _, on := range platforms {
			t.Run(on.name, func(t *testing.T) {
				r := &runner{rig: r.rig, t: t, work: r.work}
				play := func(task trap, prepare string) (*job, string) {
					j := r.newJob(task)
					if _, exit := r.run(j.checkout, prepare); exit != 0 {
						t.Fatal("no checkout")
					}
					before := snapshot(t, j.checkout)
					j.play(on.steps(t), on.env(j)...)
					exit := j.exit
					j.exit = 0
					j.check(task, before, on.patch(j))
					j.exit = exit
					patch, err := os.ReadFile(on.patch(j))
					if err != nil {
						t.Error(err)
					}
					return j, string(patch)
				}
				if j, _ := play(traps[1], ":"); j.exit != 0 {
					t.Errorf("exit %d", j.exit)
				}
				if j, _ := play(trap{plant: "exit 7"}, ":"); j.exit != 7 {
					t.Errorf("a task that fails: exit %d", j.exit)
				}
				j, patch := play(trap{plant: "ulimit -n >limit"}, `printf '[limits]\nopen_files = 1000\n' >toold.project.toml; git add .; git commit -qm project; `+
					`git update-ref refs/remotes/origin/base HEAD; printf '[limits]\nopen_files = 2000\n' >toold.project.toml; git add .; git commit -qm task`)
				if !strings.Contains(patch, "+1000\n") || j.exit != 0 {
					t.Errorf("the project file of the base does not hold: exit %d\n%s", j.exit, patch)
				}
			})
		}
	})
}

// TestExampleArtifacts: a change that brings files and links of the names of GitLab's artifacts does not
// become the report, and leads no artifact elsewhere.
func TestExampleArtifacts(t *testing.T) {
	r := newRunner(t)
	j := r.newJob(trap{})
	plant := fmt.Sprintf("mkdir report; echo forged >report/junit.xml; ln -s %s changes.patch; git add .; git commit -qm task", j.canary)
	if _, exit := r.run(j.checkout, plant); exit != 0 {
		t.Fatal("no checkout")
	}
	j.play(gitlabSteps(t), "CI_BUILDS_DIR="+j.temp, "CI_JOB_ID=7", "CI_DEFAULT_BRANCH=base")
	for name, want := range map[string]string{"report/junit.xml": "<testsuite", "changes.patch": "+++ b/result\n"} {
		if b, err := os.ReadFile(j.checkout + "/" + name); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s is %q, %v", name, b, err)
		}
	}
	for _, dir := range []string{j.canary, j.temp} {
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("the job leaves %v in %s, %v", left, dir, err)
		}
	}
}

// TestExampleKeepCache: what the main branch's job has compiled is what later jobs begin
// with, and what a task wrote to its cache is not.
func TestExampleKeepCache(t *testing.T) { withRules(t, keepsCache) }

func keepsCache(t *testing.T, r *runner) {
	var github struct {
		Jobs map[string]struct {
			Steps []struct{ Run string }
		}
	}
	example(t, "github-actions.yml", &github)
	var gitlab map[string]struct{ Script []string }
	example(t, "gitlab-ci.yml", &gitlab)
	steps := github.Jobs["keep-cache"].Steps
	kept := steps[len(steps)-1].Run
	if other := gitlab["keep-cache"].Script; len(other) != 1 || other[0] != kept {
		t.Errorf("GitHub's job and GitLab's differ: %q, %q", kept, other)
	}
	const ask = "cat /caches/go/build/* >result; echo evil >/caches/go/build/evil"
	play := func(task string) string {
		j := r.newJob(trap{plant: task})
		build := "#!/bin/sh\necho good >/caches/go/build/good\n"
		if err := os.WriteFile(j.checkout+"/build.sh", []byte(build), 0o755); err != nil {
			t.Fatal(err)
		}
		j.play(githubSteps(t), "RUNNER_TEMP="+j.temp)
		patch, err := os.ReadFile(j.temp + "/changes.patch")
		if err != nil || j.exit != 0 {
			t.Fatalf("exit %d, %v", j.exit, err)
		}
		if _, exit := j.run(j.checkout, kept); exit != 0 {
			t.Fatalf("the main branch's job: exit %d", exit)
		}
		return string(patch)
	}
	play("echo evil >/caches/go/build/evil")
	if patch := play(ask); !strings.Contains(patch, "+good\n") || strings.Contains(patch, "evil\n") {
		t.Errorf("a job began with another cache than the main branch's:\n%s", patch)
	}
	// Another profile than the one that is trusted may not.
	j := r.newJob(trap{})
	if _, exit := j.run(j.checkout, `s=$(toolctl session create --cache go); toolctl cache promote "$s" go`); exit != 3 {
		t.Errorf("a session of the profile build was promoted: exit %d, want 3", exit)
	}
}

// A job that finds all sessions of the machine in use waits for one, and says so.
func TestExampleJobWaits(t *testing.T) {
	r := newRunner(t)
	fill := "n=1; while toolctl session create --name held$n 2>full; do n=$((n + 1)); done; cat full >&2"
	if stderr, _ := r.run(r.work, fill); !strings.Contains(stderr, "max_sessions") {
		t.Fatal("the machine takes more sessions")
	}
	task := trap{}
	j := r.newJob(task)
	before := snapshot(t, j.checkout)
	freed := make(chan error, 1)
	go func() { // one session ends as soon as the job is the first of those that wait
		script := `until curl -sS --max-time 1 --unix-socket "$TOOLD_SOCKET" -H 'Content-Type: application/json' -H 'Accept: text/event-stream' ` +
			`-d '{"queue":"1h"}' http://toold/v1/sessions | grep -q '"position":2'; do sleep 0.1; done; toolctl session rm held1`
		cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
		cmd.Env = []string{"PATH=" + programs + ":" + os.Getenv("PATH"), "TOOLD_SOCKET=" + r.socket}
		cmd.SysProcAttr = asRunner()
		freed <- cmd.Run()
	}()
	j.play(githubSteps(t), "RUNNER_TEMP="+j.temp)
	if err := <-freed; err != nil {
		t.Error("the job did not wait: ", err)
	}
	j.check(task, before, j.temp+"/changes.patch")
	if !strings.Contains(j.stderr, "waiting, position 1") {
		t.Error("the job does not say that it waits")
	}
}

// The session by curl, of the same user.
func TestExampleSession(t *testing.T) {
	for _, program := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("no " + program)
		}
	}
	r := newRunner(t)
	j := r.newJob(trap{})
	script := filepath.Join(j.temp, "session.sh")
	if err := os.WriteFile(script, example(t, "session.sh", nil), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", script, j.checkout, `echo "$((6 * 7))"; echo x >.envrc`)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TOOLD_SOCKET=" + r.socket}
	cmd.SysProcAttr = asRunner()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{`"output": "42\n`, `"exit": 0`, "event: completed", `".envrc"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}
