package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// savedEntries is an archive as old versions of docker save wrote it: a layer
// that two images share is a link.
func savedEntries(t *testing.T, change func(map[string]tarEntry)) []byte {
	t.Helper()
	layer := tarOf(t, file("a", "x"))
	hash, _, _ := v1.SHA256(bytes.NewReader(layer))
	config, err := json.Marshal(v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{hash}}})
	if err != nil {
		t.Fatal(err)
	}
	configName := strings.TrimPrefix(digestOf(config), "sha256:") + ".json"
	manifest, err := json.Marshal([]savedImage{{Config: configName, RepoTags: []string{"old:1"}, Layers: []string{"two/layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]tarEntry{
		"config": file(configName, string(config)), "layer": file("one/layer.tar", string(layer)),
		"link": symlink("two/layer.tar", "../one/layer.tar"), "manifest": file("manifest.json", string(manifest)),
	}
	change(entries)
	var list []tarEntry
	for _, key := range []string{"config", "layer", "link", "manifest"} {
		if e, ok := entries[key]; ok {
			list = append(list, e)
		}
	}
	return tarOf(t, list...)
}

func TestImportOldSaved(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(map[string]tarEntry)
		want   error
		says   string
	}{
		"as it is":        {func(map[string]tarEntry) {}, nil, ""},
		"hard link":       {func(e map[string]tarEntry) { e["link"] = hardlink("two/layer.tar", "one/layer.tar") }, nil, ""},
		"layer missing":   {func(e map[string]tarEntry) { delete(e, "layer") }, ErrInvalid, "two/layer.tar"},
		"link to a link":  {func(e map[string]tarEntry) { e["layer"] = symlink("one/layer.tar", "../two/layer.tar") }, ErrInvalid, "two/layer.tar"},
		"link out":        {func(e map[string]tarEntry) { e["link"] = symlink("two/layer.tar", "/etc/passwd") }, ErrInvalid, "two/layer.tar"},
		"other content":   {func(e map[string]tarEntry) { e["layer"] = file("one/layer.tar", string(tarOf(t, file("b", "y")))) }, ErrCorrupt, "layer 1"},
		"config swapped":  {func(e map[string]tarEntry) { e["config"] = file(e["config"].Name, "{}") }, ErrCorrupt, "configuration"},
		"no tar in layer": {func(e map[string]tarEntry) { e["layer"] = file("one/layer.tar", strings.Repeat("x", 1024)) }, ErrInvalid, "layer 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			img, err := s.Import(t.Context(), "", bytes.NewReader(savedEntries(t, tt.change)))
			if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("got %v\nwant %v that says %q", err, tt.want, tt.says)
			}
			if err != nil {
				checkNothingLeft(t, s, 0)
			} else if got := listing(t, rootfsOf(s, img)); len(got) != 2 {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestLayoutFiles: an archive that calls itself a layout.
func TestLayoutFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  error
		says  string
	}{
		"other version": {map[string]string{"oci-layout": `{"imageLayoutVersion":"2.0.0"}`}, ErrInvalid, "2.0.0"},
		"no index":      {map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`}, os.ErrNotExist, "index.json"},
		"index is none": {map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`, "index.json": "x"}, ErrInvalid, "index.json"},
		"no images":     {map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`, "index.json": `{"manifests":[]}`}, ErrInvalid, "no image"},
		"large marker":  {map[string]string{"oci-layout": strings.Repeat(" ", 5000)}, ErrTooLarge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			src := t.TempDir()
			for n, content := range tt.files {
				if err := os.WriteFile(filepath.Join(src, n), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := newStore(t)
			_, err := s.Import(t.Context(), "x", bytes.NewReader(packed(t, src)))
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v\nwant %v that says %q", err, tt.want, tt.says)
			}
			checkNothingLeft(t, s, 0)
		})
	}
}

// TestPullRedirected: blobs are often somewhere else than the registry.
func TestPullRedirected(t *testing.T) {
	host := newRegistryBehind(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if rest, ok := strings.CutPrefix(r.URL.Path, "/elsewhere"); ok {
				r.URL.Path = rest
			} else if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				http.Redirect(w, r, "/elsewhere"+r.URL.Path, http.StatusTemporaryRedirect)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	// Larger than what any other answer may be.
	big := make([]byte, maxReply+1<<20)
	for i := range big {
		big[i] = byte(i * i >> 3)
	}
	push(t, host+"/base:v1", imageOf(t, v1.Config{}, layerOf(t, file("big", string(big)))))
	if _, err := newStore(t).Pull(t.Context(), client.ImagePull{Ref: host + "/base:v1"}, quiet); err != nil {
		t.Error(err)
	}
}

// TestSparse: a file with holes is one with zeros.
func TestSparse(t *testing.T) {
	path, err := unpackLayers(t, Limits{}, sparseTar(100_000))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(path, "hole"))
	if err != nil || !bytes.Equal(got, make([]byte, 100_000)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestSurvey: the second look would find what the first has missed.
func TestSurvey(t *testing.T) {
	needRoot(t)
	for name, make := range map[string]func(dir string) error{
		"device": func(d string) error { return unix.Mknod(d+"/bad", unix.S_IFCHR, int(unix.Mkdev(1, 3))) },
		"set-uid": func(d string) error {
			return errors.Join(os.WriteFile(d+"/bad", nil, 0o700), unix.Chmod(d+"/bad", 0o4755))
		},
		"owner": func(d string) error { return errors.Join(os.Mkdir(d+"/bad", 0o700), os.Chown(d+"/bad", 70000, 0)) },
	} {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(dir+"/sub", 0o755), make(dir+"/sub")); err != nil {
			t.Fatal(err)
		}
		if _, err := surveyTree(unix.AT_FDCWD, dir); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "bad") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
