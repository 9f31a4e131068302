package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/toold/toold/client"
)

// warm is a command that is fast where its cache is: it runs in a project, on the host and in
// new sessions. Each of them has a cache of its own, which a run before filled.
type warm struct {
	name, cache string
	needs       string            // what a host must have for it, as a command
	files       map[string]string // the project
	command     string
	vars        map[string]string // of the cache, on the host: where below it each leads
}

// benchCaches times the second run of builds and package managers in new sessions, which have
// what another session promoted, beside the host's own warm runs. Making a session is not
// part of it. Packages come from a registry of the benchmark's own.
func benchCaches(ctx context.Context, l *lab) []row {
	host := get(ownAddress())
	ln := get(net.Listen("tcp4", host.String()+":0"))
	registry := newRegistry("http://" + ln.Addr().String())
	server := &http.Server{Handler: registry, ReadHeaderTimeout: time.Minute}
	go server.Serve(ln)
	defer server.Close()
	own := newLab(labConfig{smoke: l.smoke, sandbox: fmt.Sprintf("runtime = %q\n[network]\nmode = \"rules\"\n[permission.network]\n%q = \"allow\"\n", l.runc, ln.Addr())})
	defer own.close()
	var rows []row
	for _, w := range []warm{goTest(l.smoke), registry.npmCI(), registry.pipInstall()} {
		if err := exec.CommandContext(ctx, "sh", "-c", w.needs+" >/dev/null 2>&1").Run(); err != nil {
			l.note("caches: %s is not measured: this host lacks %q", w.name, w.needs)
			continue
		}
		rows = append(rows, own.warmRuns(ctx, &w))
	}
	return rows
}

// warmRuns fills both caches, and then times runs in turns.
func (l *lab) warmRuns(ctx context.Context, w *warm) row {
	trees := map[string]string{}
	for _, side := range []string{"host", "session"} {
		tree := filepath.Join(l.dir, w.cache+"-"+side)
		for name, text := range w.files {
			file := filepath.Join(tree, name)
			must(os.MkdirAll(filepath.Dir(file), 0o755))
			must(os.WriteFile(file, []byte(text), 0o644))
		}
		trees[side] = tree
	}
	onHost := func() error {
		cmd := exec.CommandContext(ctx, "bash", "-c", w.command)
		cmd.Dir, cmd.Env = trees["host"], append(os.Environ(), "PATH=/usr/local/go/bin:/usr/bin:/bin", "GOPROXY=off")
		for name, at := range w.vars {
			dir := filepath.Join(l.dir, "cache-"+w.cache, at)
			must(os.MkdirAll(dir, 0o755))
			cmd.Env = append(cmd.Env, name+"="+dir)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s on the host: %w\n%s", w.name, err, out)
		}
		return nil
	}
	inSession := func() (id string, took time.Duration) {
		id = get(l.open(ctx, client.SessionCreate{
			Worktree: client.Worktree{Source: trees["session"], Mode: client.WorktreeOverlay},
			Caches:   []client.CacheUse{{Name: w.cache}},
			Env:      map[string]string{"GOPROXY": "off"},
		}))
		start := time.Now()
		must(l.bash(ctx, id, w.command))
		return id, time.Since(start)
	}
	must(onHost())
	filled, _ := inSession()
	get(l.c.PromoteCache(ctx, filled, w.cache))
	must(l.end(ctx, filled))
	took := get(inTurns(manner{n: l.n(15), run: 1}, []subject{
		{name: "host", op: timed(onHost)},
		{name: "session", op: func() (time.Duration, error) {
			id, took := inSession()
			return took, l.end(ctx, id)
		}},
	}))
	return row{Group: "caches", Name: w.name + " in a new session", Unit: "µs", stats: took["session"], Target: "≤ 1.2 ×"}.
		against("the host's", took["host"])
}

// goTest builds and tests a program with a good part of the standard library, and does not
// take the result of another run for its own.
func goTest(smoke bool) warm {
	imports, count := "net/http", 20
	if smoke { // compiling all that takes a minute
		imports, count = "errors", 2
	}
	files := map[string]string{"go.mod": "module example.com/bench\n\ngo 1.26\n"}
	for i := range count {
		name := fmt.Sprintf("p%d", i)
		files[name+"/a.go"] = fmt.Sprintf("package %s\n\nimport _ %q\n\nfunc F() int { return %d }\n", name, imports, i)
		files[name+"/a_test.go"] = fmt.Sprintf("package %s\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n\tif F() != %d {\n\t\tt.Fatal()\n\t}\n}\n", name, i)
	}
	return warm{
		name: "go test", cache: "go", needs: "go version", files: files, command: "go test -count=1 ./...",
		vars: map[string]string{"GOCACHE": "build", "GOMODCACHE": "mod"},
	}
}

// registry is one of npm and of Python packages, in memory.
type registry struct {
	url   string
	files map[string][]byte
	names []string
	locks map[string]any // of npm
}

// packages is how many a project has.
const packages = 30

func newRegistry(url string) *registry {
	r := &registry{url: url, files: map[string][]byte{}, locks: map[string]any{}}
	for i := range packages {
		name := fmt.Sprintf("pkg%d", i)
		r.names = append(r.names, name)
		r.addNPM(name)
		r.addWheel(name)
	}
	return r
}

// ServeHTTP implements http.Handler.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, ok := r.files[strings.TrimSuffix(req.URL.Path, "/")]
	if !ok {
		http.NotFound(w, req)
		return
	}
	age := "max-age=31536000, immutable"
	if strings.HasPrefix(req.URL.Path, "/simple") {
		age = "max-age=600"
		w.Header().Set("Content-Type", "text/html")
	}
	w.Header().Set("Cache-Control", age)
	http.ServeContent(w, req, filepath.Base(req.URL.Path), time.Unix(1e9, 0), bytes.NewReader(body))
}

func (r *registry) addNPM(name string) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	add := func(file, text string) {
		_ = t.WriteHeader(&tar.Header{Name: "package/" + file, Mode: 0o644, Size: int64(len(text))}) // to memory
		_, _ = t.Write([]byte(text))
	}
	add("package.json", fmt.Sprintf(`{"name":%q,"version":"1.0.0"}`, name))
	for i := range 40 {
		add(fmt.Sprintf("lib/f%d.js", i), strings.Repeat("// "+name+"\n", 200))
	}
	_, _ = t.Close(), z.Close()
	path := "/npm/" + name + "-1.0.0.tgz"
	r.files[path] = b.Bytes()
	sum := sha512.Sum512(b.Bytes())
	r.locks["node_modules/"+name] = map[string]string{
		"version": "1.0.0", "resolved": r.url + path, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
	}
}

func (r *registry) npmCI() warm {
	deps := map[string]string{}
	for _, n := range r.names {
		deps[n] = "1.0.0"
	}
	top := map[string]any{"name": "bench", "version": "1.0.0", "dependencies": deps}
	r.locks[""] = top
	text := func(v any) string {
		b, _ := json.Marshal(v) // of maps and texts
		return string(b)
	}
	return warm{
		name: "npm ci", cache: "npm", needs: "npm --version", command: "npm ci --no-audit --no-fund --registry " + r.url + "/npm",
		files: map[string]string{
			"package.json":      text(top),
			"package-lock.json": text(map[string]any{"name": "bench", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": r.locks}),
		},
		vars: map[string]string{"npm_config_cache": "npm"},
	}
}

func (r *registry) addWheel(name string) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := name + "-1.0.dist-info/"
	var record strings.Builder
	add := func(file, text string) {
		f, _ := z.Create(file) // to memory
		_, _ = f.Write([]byte(text))
		fmt.Fprintf(&record, "%s,,\n", file)
	}
	add(info+"METADATA", fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n", name))
	add(info+"WHEEL", "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
	for i := range 20 {
		add(fmt.Sprintf("%s/m%d.py", name, i), strings.Repeat("x = 1\n", 300))
	}
	f, _ := z.Create(info + "RECORD")
	fmt.Fprintf(f, "%s%sRECORD,,\n", record.String(), info)
	_ = z.Close()
	file := name + "-1.0-py3-none-any.whl"
	r.files["/wheels/"+file] = b.Bytes()
	r.files["/simple/"+name] = fmt.Appendf(nil, "<a href=\"/wheels/%s#sha256=%x\">%[1]s</a>\n", file, sha256.Sum256(b.Bytes()))
}

func (r *registry) pipInstall() warm {
	host, _, _ := strings.Cut(strings.TrimPrefix(r.url, "http://"), ":")
	return warm{
		name: "pip install", cache: "pip", needs: "/usr/bin/python3 -m pip --version", vars: map[string]string{"PIP_CACHE_DIR": "pip"},
		command: "rm -rf out && /usr/bin/python3 -m pip install -q --disable-pip-version-check --no-compile --target out --index-url " + r.url + "/simple --trusted-host " + host + " " + strings.Join(r.names, " "),
		files:   map[string]string{"requirements.txt": strings.Join(r.names, "\n")},
	}
}
