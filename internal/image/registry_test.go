package image

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/toold/toold/client"
)

func TestPull(t *testing.T) {
	s, host := newStore(t), newTestRegistry(t)
	src := simpleImage(t)
	push(t, host+"/tools/base:v1", src)
	var stages []string
	img, err := s.Pull(t.Context(), client.ImagePull{Ref: host + "/tools/base:v1"}, func(p client.ImageProgress) {
		if n := len(stages); n == 0 || stages[n-1] != p.Stage {
			stages = append(stages, p.Stage)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"d 0755 0:0 .",
		"d 0755 0:0 bin",
		"- 0755 0:0 bin/sh #!shell\n",
		"d 0755 0:0 etc",
		"- 0644 0:0 etc/motd new",
	}
	if got := listing(t, rootfsOf(s, img)); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	id, _ := src.ConfigName()
	manifest, _ := src.Digest()
	if img.Digest != id.String() || s.images[img.Digest].Manifest != manifest.String() {
		t.Errorf("digests %s, %s; want %s, %s", img.Digest, s.images[img.Digest].Manifest, id, manifest)
	}
	if img.Size != 11 || img.Files != 5 || !img.Created.Equal(testEpoch) {
		t.Errorf("described as %+v", img)
	}
	if want := []string{"PATH=/bin", "LANG=C.UTF-8"}; !slices.Equal(s.images[img.Digest].Env, want) {
		t.Errorf("env %q, want %q", s.images[img.Digest].Env, want)
	}
	if want := []string{stageResolve, stageDownload, stageUnpack, stageDownload, stageUnpack, stageCommit}; !slices.Equal(stages, want) {
		t.Errorf("stages %q, want %q", stages, want)
	}
	checkNothingLeft(t, s, 1)
}

// TestPullDigest: a name with a digest means exactly that content.
func TestPullDigest(t *testing.T) {
	host := newTestRegistry(t)
	src := simpleImage(t)
	push(t, host+"/base:v1", src)
	digest, _ := src.Digest()
	pinned := host + "/base@" + digest.String()
	s := newStore(t)
	img, err := s.Pull(t.Context(), client.ImagePull{Ref: pinned}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{pinned, digest.String(), host + "/base:tag-too@" + digest.String()} {
		h, err := s.Acquire(t.Context(), ref)
		if err != nil {
			t.Errorf("%s: %v", ref, err)
			continue
		}
		if h.Digest != img.Digest {
			t.Errorf("%s: got %s", ref, h.Digest)
		}
		h.Release()
	}
	// Pulled by its tag, it is known by its digest too.
	s = newStore(t)
	if _, err := s.Pull(t.Context(), client.ImagePull{Ref: host + "/base:v1"}, quiet); err != nil {
		t.Fatal(err)
	}
	h, err := s.Acquire(t.Context(), pinned)
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
}

// TestPullTwice: what is here is not transferred again, also under another name.
func TestPullTwice(t *testing.T) {
	var blobs atomic.Int32
	host := newRegistryBehind(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				blobs.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	s := newStore(t)
	for i, ref := range []string{host + "/a:1", host + "/a:1", host + "/b/c:2"} {
		push(t, ref, simpleImage(t))
		blobs.Store(0)
		if _, err := s.Pull(t.Context(), client.ImagePull{Ref: ref}, quiet); err != nil {
			t.Fatal(err)
		}
		// The configuration, and at first two layers.
		if got, want := blobs.Load(), int32(1+2*max(0, 1-i)); got != want {
			t.Errorf("pull %d asked for %d blobs, want %d", i, got, want)
		}
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 1 || len(list[0].Names) != 2 {
		t.Errorf("got %+v, %v", list, err)
	}
}

func TestPullIndex(t *testing.T) {
	host := newTestRegistry(t)
	mine := simpleImage(t)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageOf(t, v1.Config{}, layerOf(t, file("other", ""))), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: mine, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH, Variant: "v8"}}},
	)
	ref, err := name.ParseReference(host + "/multi:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	s := newStore(t)
	img, err := s.Pull(t.Context(), client.ImagePull{Ref: host + "/multi:v1"}, quiet)
	id, _ := mine.ConfigName()
	if err != nil || img.Digest != id.String() {
		t.Fatalf("got %+v, %v", img, err)
	}
	digest, _ := index.Digest()
	if _, err := s.Pull(t.Context(), client.ImagePull{Ref: host + "/multi@" + digest.String()}, quiet); err != nil {
		t.Errorf("by the index's digest: %v", err)
	}
}

// TestPullRefused: registries that lie, stall, stop, or do not know.
func TestPullRefused(t *testing.T) {
	src := simpleImage(t)
	layers, _ := src.Layers()
	layerDigest, _ := layers[1].Digest()
	layerSize, _ := layers[1].Size()
	digest, _ := src.Digest()
	blob := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/blobs/"+layerDigest.String())
	}
	manifest := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/")
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect to plain HTTP was followed")
	}))
	defer elsewhere.Close()
	tests := []struct {
		name  string
		ref   string // behind the host
		when  func(*http.Request) bool
		serve http.HandlerFunc
		want  error
		says  string
	}{
		{"unknown tag", "/base:v2", nil, nil, ErrNotFound, "registry"},
		{"unknown repository", "/other:v1", nil, nil, ErrNotFound, ""},
		{"unknown digest", "/base@sha256:" + strings.Repeat("0", 64), nil, nil, ErrNotFound, ""},
		{"other content for a digest", "/base@" + digest.String(), manifest, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			io.WriteString(w, `{"schemaVersion":2}`)
		}, ErrRegistry, "does not match"},
		{"other bytes in a layer", "/base:v1", blob, func(w http.ResponseWriter, r *http.Request) {
			w.Write(bytes.Repeat([]byte("x"), int(layerSize)))
		}, ErrCorrupt, "layer 2 of 2"},
		{"fewer bytes in a layer", "/base:v1", blob, func(w http.ResponseWriter, r *http.Request) {
			w.Write([]byte("x"))
		}, ErrRegistry, "layer 2 of 2"},
		{"more bytes in a layer", "/base:v1", blob, func(w http.ResponseWriter, r *http.Request) {
			w.Write(bytes.Repeat([]byte("x"), int(layerSize)+1000))
		}, ErrCorrupt, "layer 2 of 2"},
		{"nothing comes", "/base:v1", blob, func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}, ErrRegistry, errStalled.Error()},
		{"nothing more comes", "/base:v1", blob, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(layerSize))
			w.Write([]byte("x"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, ErrRegistry, errStalled.Error()},
		{"refused", "/base:v1", manifest, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
		}, ErrRegistry, "login"},
		{"too many requests", "/base:v1", manifest, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
		}, ErrRegistry, "too many"},
		{"an endless manifest", "/base:v1", manifest, func(w http.ResponseWriter, r *http.Request) {
			endless(w)
		}, ErrRegistry, "more than"},
		{"a large manifest", "/base:v1", manifest, func(w http.ResponseWriter, r *http.Request) {
			w.Write(bytes.Repeat([]byte(" "), 5<<20))
		}, ErrTooLarge, "manifest"},
		{"redirected to plain HTTP", "/base:v1", blob, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1), http.StatusTemporaryRedirect)
		}, ErrRegistry, "not encrypted"},
		{"an endless greeting", "/base:v1", func(r *http.Request) bool { return r.URL.Path == "/v2/" }, func(w http.ResponseWriter, r *http.Request) {
			endless(w)
		}, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var hostile atomic.Bool
			host := newRegistryBehind(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if hostile.Load() && tt.when != nil && tt.when(r) {
						tt.serve(w, r)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			push(t, host+"/base:v1", src)
			hostile.Store(true)
			s := newStore(t)
			if tt.says == errStalled.Error() { // others may need a while for an answer
				s.stall = 200 * time.Millisecond
			}
			_, err := s.Pull(t.Context(), client.ImagePull{Ref: host + tt.ref}, quiet)
			if tt.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v\nwant %v that says %q", err, tt.want, tt.says)
			}
			checkNothingLeft(t, s, 0)
		})
	}
}

// endless answers until nobody listens.
func endless(w http.ResponseWriter) {
	line := bytes.Repeat([]byte("x"), 64<<10)
	for {
		if _, err := w.Write(line); err != nil {
			return
		}
	}
}

// TestPullRetries: a connection that breaks once is no failure.
func TestPullRetries(t *testing.T) {
	var broken atomic.Bool
	host := newRegistryBehind(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") && broken.CompareAndSwap(true, false) {
				w.Header().Set("Content-Length", "1000")
				w.Write([]byte("x"))
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	})
	push(t, host+"/base:v1", simpleImage(t))
	s := newStore(t)
	_, err := s.Pull(t.Context(), client.ImagePull{Ref: host + "/base:v1"}, func(p client.ImageProgress) {
		if p.Stage == stageDownload && p.Layer == 1 && p.Bytes == 0 {
			broken.CompareAndSwap(false, true)
		}
	})
	// The first layer's download breaks, and again each time it is begun.
	if !errors.Is(err, ErrRegistry) {
		t.Errorf("a connection that always breaks: %v", err)
	}
	var once atomic.Bool
	_, err = s.Pull(t.Context(), client.ImagePull{Ref: host + "/base:v1"}, func(p client.ImageProgress) {
		if p.Stage == stageDownload && once.CompareAndSwap(false, true) {
			broken.Store(true)
		}
	})
	if err != nil {
		t.Errorf("a connection that breaks once: %v", err)
	}
}

func TestPullCancelled(t *testing.T) {
	started := make(chan struct{})
	var hostile atomic.Bool
	host := newRegistryBehind(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if hostile.Load() && strings.Contains(r.URL.Path, "/blobs/") {
				close(started)
				<-r.Context().Done()
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	push(t, host+"/base:v1", simpleImage(t))
	hostile.Store(true)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the client went away")
	go func() {
		<-started
		cancel(reason)
	}()
	s := newStore(t)
	if _, err := s.Pull(ctx, client.ImagePull{Ref: host + "/base:v1"}, quiet); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	checkNothingLeft(t, s, 0)
}

func TestPullNames(t *testing.T) {
	s := newStore(t)
	for _, ref := range []string{"", "UPPER", "a b", "sha256:" + strings.Repeat("0", 64), "x@sha256:0", "http://host/x"} {
		if _, err := s.Pull(t.Context(), client.ImagePull{Ref: ref}, quiet); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

// TestPlainHTTP: only where it does not leave the host, or somebody asked.
func TestPlainHTTP(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost:5000": true, "localhost": true, "127.0.0.1:80": true, "127.8.8.8": true, "[::1]:5000": true,
		"10.0.0.1:5000": false, "registry.local": false, "localhost.example:5000": false, "128.0.0.1": false, "::": false,
	} {
		if got := isLoopback(host); got != want {
			t.Errorf("%s: %v, want %v", host, got, want)
		}
	}
	reached := httptest.NewServer(http.NotFoundHandler())
	defer reached.Close()
	for plain, want := range map[bool]string{false: "not encrypted", true: "404"} {
		w := newWire("192.168.0.1:5000", plain, time.Second)
		defer w.close()
		w.base.DialContext = nil
		w.base.Proxy = nil
		req := httptest.NewRequest(http.MethodGet, "http://192.168.0.1:5000/v2/", nil)
		w.base.RegisterProtocol("http", roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{Status: "404", StatusCode: 404, Body: http.NoBody}, nil
		}))
		resp, err := w.RoundTrip(req)
		got := fmt.Sprint(err)
		if err == nil {
			got = resp.Status
			resp.Body.Close()
		}
		if !strings.Contains(got, want) {
			t.Errorf("plain HTTP allowed: %v; got %s, want %s", plain, got, want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestCredentials: nobody logs in, whatever credentials this user has.
func TestCredentials(t *testing.T) {
	host := newRegistryBehind(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, _, ok := r.BasicAuth(); r.Method == http.MethodGet && !ok && strings.HasPrefix(r.Header.Get("User-Agent"), "toold") {
				w.Header().Set("WWW-Authenticate", `Basic realm="tests"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	push(t, host+"/base:v1", simpleImage(t))
	config := t.TempDir()
	auth := base64.StdEncoding.EncodeToString([]byte("anna:secret"))
	if err := os.WriteFile(filepath.Join(config, "config.json"), fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, host, auth), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", config)
	if _, err := newStore(t).Pull(t.Context(), client.ImagePull{Ref: host + "/base:v1"}, quiet); !errors.Is(err, ErrRegistry) || !strings.Contains(err.Error(), "import") {
		t.Errorf("got %v", err)
	}
}

// fakeSource serves documents by their digest.
type fakeSource map[string][]byte

func (f fakeSource) add(v any) v1.Descriptor {
	raw, ok := v.([]byte)
	if !ok {
		raw, _ = json.Marshal(v)
	}
	hash, _, _ := v1.SHA256(bytes.NewReader(raw))
	f[hash.String()] = raw
	return v1.Descriptor{Digest: hash, Size: int64(len(raw))}
}

func (f fakeSource) manifest(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(f[d.Digest.String()])), nil
}

func (f fakeSource) blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	return f.manifest(ctx, d)
}

// TestHostileManifests: documents that are malformed, ambiguous, or too much.
func TestHostileManifests(t *testing.T) {
	f := fakeSource{}
	layer := f.add(tarOf(t, file("a", "x")))
	config := func(change func(*v1.ConfigFile)) v1.Descriptor {
		c := v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{layer.Digest}}}
		change(&c)
		return f.add(c)
	}
	same := func(*v1.ConfigFile) {}
	manifest := func(c v1.Descriptor, layers ...v1.Descriptor) map[string]any {
		return map[string]any{"schemaVersion": 2, "config": c, "layers": layers}
	}
	index := func(list ...v1.Descriptor) map[string]any {
		return map[string]any{"schemaVersion": 2, "manifests": append([]v1.Descriptor{}, list...)}
	}
	many := slices.Repeat([]v1.Descriptor{layer}, 128)
	nested := f.add(manifest(config(same), layer))
	for range 6 {
		nested = f.add(index(nested))
	}
	good := f.add(manifest(config(same), layer))
	wrongSize, negative, sha512 := layer, layer, layer
	wrongSize.Size = 1 << 50
	negative.Size = -1
	sha512.Digest = v1.Hash{Algorithm: "sha512", Hex: strings.Repeat("0", 128)}
	largeConfig := config(func(c *v1.ConfigFile) { c.Author = strings.Repeat("x", 5<<20) })
	lying := good
	lying.Size++
	tests := []struct {
		name string
		doc  any
		want error
		says string
	}{
		{"good", manifest(config(same), layer), nil, ""},
		{"good, in an index", index(good), nil, ""},
		{"no JSON", []byte("{"), ErrInvalid, "manifest"},
		{"nothing", map[string]any{}, ErrInvalid, "neither"},
		{"empty index", index(), ErrPlatform, ""},
		{"old version", map[string]any{"schemaVersion": 1, "fsLayers": []string{}}, ErrInvalid, "version 1"},
		{"parts without end", []byte(`{"manifests":[{}` + strings.Repeat(",{}", maxDocument+1) + "]}"), ErrTooLarge, "parts"},
		{"a configuration without end", manifest(f.add([]byte(`{"history":[{}`+strings.Repeat(",{}", maxDocument+1)+"]}")), layer), ErrTooLarge, "parts"},
		{"index and image", map[string]any{"manifests": []v1.Descriptor{good}, "config": layer, "layers": many[:1]}, ErrRefused, "as well"},
		{"indexes in indexes", index(nested), ErrRefused, "more than 4"},
		{"a size that is not the content's", index(lying), nil, ""},
		{"no layers", manifest(config(func(c *v1.ConfigFile) { c.RootFS.DiffIDs = nil })), ErrInvalid, "no layers"},
		{"layers that the configuration does not know", manifest(config(same), layer, layer), ErrInvalid, "speaks of 1"},
		{"too many layers", manifest(config(func(c *v1.ConfigFile) { c.RootFS.DiffIDs = slices.Repeat([]v1.Hash{layer.Digest}, 128) }), many...), ErrTooLarge, "128 layers"},
		{"a large layer", manifest(config(same), wrongSize), ErrTooLarge, "more than"},
		{"a negative layer", manifest(config(same), negative), ErrInvalid, "negative"},
		{"another kind of digest", manifest(config(same), sha512), ErrInvalid, "sha256"},
		{"a large configuration", manifest(largeConfig, layer), ErrTooLarge, "configuration"},
		{"a configuration that is none", manifest(f.add([]byte("[]")), layer), ErrInvalid, "configuration"},
		{"another system", manifest(config(func(c *v1.ConfigFile) { c.OS = "windows" }), layer), ErrPlatform, "windows"},
		{"another processor", manifest(config(func(c *v1.ConfigFile) { c.Architecture = "s390x" }), layer), ErrPlatform, "s390x"},
		{"NUL in the environment", manifest(config(func(c *v1.ConfigFile) { c.Config.Env = []string{"A=\x00"} }), layer), ErrRefused, "NUL"},
		{"a large environment", manifest(config(func(c *v1.ConfigFile) { c.Config.Env = []string{"A=" + strings.Repeat("x", 1<<18)} }), layer), ErrTooLarge, "environment"},
		{"another content than the configuration says", manifest(config(func(c *v1.ConfigFile) {
			c.RootFS.DiffIDs = []v1.Hash{{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}}
		}), layer), ErrCorrupt, "layer 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t)
			d := f.add(tt.doc)
			r, err := s.resolve(t.Context(), f, f[d.Digest.String()], d.Digest.String())
			if err == nil {
				_, err = s.build(t.Context(), r, nil, quiet)
			}
			if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v\nwant %v that says %q", err, tt.want, tt.says)
			}
			if err != nil {
				checkNothingLeft(t, s, 0)
			}
		})
	}
}
