package session

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/image"
	"github.com/toold/toold/internal/sandbox"
)

// gallery is Images in memory: names, and how often each is held.
type gallery struct {
	engine bool // it gives no root filesystems

	mu   sync.Mutex // guards held
	held map[string]int
}

func newGallery() *gallery { return &gallery{held: map[string]int{"tools:1": 0}} }

const galleryDigest = "sha256:0123"

func (g *gallery) List(context.Context) ([]client.Image, error) {
	return []client.Image{{Digest: galleryDigest, Names: []string{"tools:1"}}}, nil
}

func (g *gallery) Pull(_ context.Context, r client.ImagePull, progress func(client.ImageProgress)) (*client.Image, error) {
	progress(client.ImageProgress{Stage: "resolve"})
	if r.Ref == "broken:1" {
		return nil, errors.New("a secret of the host")
	}
	return &client.Image{Digest: galleryDigest, Names: []string{r.Ref}}, nil
}

func (g *gallery) Import(_ context.Context, name string, archive io.Reader) (*client.Image, error) {
	_, err := io.Copy(io.Discard, archive)
	return &client.Image{Digest: galleryDigest, Names: []string{name}}, err
}

func (g *gallery) Remove(context.Context, string) error {
	if g.holders() > 0 {
		return image.ErrInUse
	}
	return nil
}

func (g *gallery) Acquire(_ context.Context, ref string) (*sandbox.HeldImage, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ref == galleryDigest {
		ref = "tools:1"
	}
	if _, ok := g.held[ref]; !ok {
		return nil, image.ErrNotFound
	}
	g.held[ref]++
	held := &sandbox.HeldImage{
		Name: ref, Digest: galleryDigest,
		Env:     []string{"PATH=/opt/tool/bin:relative::/bin", "LANG=de_DE.UTF-8", "GOPATH=/go", "LD_PRELOAD=/x.so", "BASH_ENV=/x", "HOME=/root", "GIT_DIR=/x", "CDPATH=/x", "no equals", "A B=x"},
		Release: func() { g.mu.Lock(); g.held[ref]--; g.mu.Unlock() },
	}
	if !g.engine {
		held.Root = &sandbox.Root{Dir: os.Stdin, Digest: galleryDigest}
	}
	return held, nil
}

func (g *gallery) holders() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held["tools:1"]
}

func imageHouse(t *testing.T) (*house, *gallery) {
	h, g := newHouse(t), newGallery()
	h.pics = map[string]Images{"fake": g}
	h.set.Limits.Disk, h.set.MaxLimits.Disk = 64<<20, 128<<20
	return h, g
}

// A session holds its image from its creation to its end, over restarts of the
// daemon, and says which one it is.
func TestImageIsHeld(t *testing.T) {
	h, g := imageHouse(t)
	m := h.open()
	s, err := m.Create(t.Context(), alice, client.SessionCreate{Image: "tools:1"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Image != "tools:1@"+galleryDigest || s.Limits.Disk != 64<<20 {
		t.Errorf("image %q, disk %v", s.Image, s.Limits.Disk)
	}
	b := h.host.box(s.ID)
	if b.spec.Root == nil || b.spec.Image != "" || b.spec.Limits.Disk != 64<<20 {
		t.Errorf("the driver got %+v", b.spec)
	}
	for _, want := range []string{"PATH=/opt/tool/bin:/bin", "LANG=de_DE.UTF-8", "GOPATH=/go", "HOME=" + sandbox.Home} {
		if !slices.Contains(b.hello.Env, want) {
			t.Errorf("the tools have no %s: %v", want, b.hello.Env)
		}
	}
	for _, kv := range b.hello.Env {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "GIT_") || name == "BASH_ENV" || name == "CDPATH" || strings.Contains(name, " ") {
			t.Errorf("the tools have %s", kv)
		}
	}
	if err := m.Images.RemoveImage(t.Context(), root, "tools:1"); codeOfErr(err) != client.CodeConflict {
		t.Errorf("remove while it runs: %v", err)
	}
	h.stop()
	g.held["tools:1"] = 0 // with the process that held it
	m = h.open()
	if n := g.holders(); n != 1 {
		t.Errorf("%d hold it after a restart", n)
	}
	if _, err := m.End(t.Context(), alice, s.ID, client.EndOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if n := g.holders(); n != 0 {
		t.Errorf("%d hold it after the end", n)
	}
	if err := m.Images.RemoveImage(t.Context(), root, "tools:1"); err != nil {
		t.Error(err)
	}
}

// A creation that fails, wherever, lets go of the image.
func TestImageIsLetGo(t *testing.T) {
	h, g := imageHouse(t)
	m := h.open()
	for _, op := range []string{"create", "dial", "attach"} {
		h.host.fail(op, errors.New("boom"))
		if _, err := m.Create(t.Context(), alice, client.SessionCreate{Image: "tools:1"}); err == nil {
			t.Errorf("%s: it was made", op)
		}
		h.host.fail(op, nil)
	}
	for _, r := range []client.SessionCreate{
		{Image: "tools:1", LeasePID: 1 << 22},
		{Image: "tools:1", Worktree: client.Worktree{Source: "/nowhere"}},
	} {
		if _, err := m.Create(t.Context(), alice, r); err == nil {
			t.Errorf("%+v: it was made", r)
		}
	}
	if n := g.holders(); n != 0 {
		t.Errorf("%d hold it", n)
	}
}

func TestImageRequired(t *testing.T) {
	for name, tt := range map[string]struct {
		set   func(*house)
		req   client.SessionCreate
		code  client.Code
		text  string
		image string
	}{
		"none is fine":         {func(*house) {}, client.SessionCreate{}, "", "", ""},
		"by the daemon":        {func(h *house) { h.set.RequireImage = true }, client.SessionCreate{}, client.CodeForbidden, "this daemon", ""},
		"by the tenant":        {func(h *house) { h.set.Tenants = map[string]Tenant{"a": {RequireImage: true}} }, client.SessionCreate{}, client.CodeForbidden, "tenant a", ""},
		"by another":           {func(h *house) { h.set.Tenants = map[string]Tenant{"b": {RequireImage: true}} }, client.SessionCreate{}, "", "", ""},
		"and given":            {func(h *house) { h.set.RequireImage = true }, client.SessionCreate{Image: "tools:1"}, "", "", "tools:1@" + galleryDigest},
		"and configured":       {func(h *house) { h.set.RequireImage, h.image = true, "tools:1" }, client.SessionCreate{}, "", "", "tools:1@" + galleryDigest},
		"by digest":            {func(*house) {}, client.SessionCreate{Image: galleryDigest}, "", "", "tools:1@" + galleryDigest},
		"unknown":              {func(*house) {}, client.SessionCreate{Image: "none:1"}, client.CodeNotFound, "toolctl image pull", ""},
		"no name":              {func(*house) {}, client.SessionCreate{Image: strings.Repeat("x", 600)}, client.CodeInvalidRequest, "image", ""},
		"disk without one":     {func(*house) {}, client.SessionCreate{Limits: client.Limits{Disk: 1 << 20}}, client.CodeInvalidRequest, "write to memory and to its worktree only", ""},
		"full disk":            {func(h *house) { h.set.HostFree.Percent = 101 }, client.SessionCreate{Image: "tools:1"}, client.CodeOverloaded, "must stay", ""},
		"disk above ceiling":   {func(*house) {}, client.SessionCreate{Image: "tools:1", Limits: client.Limits{Disk: 1 << 30}}, client.CodeInvalidRequest, "may ask for", ""},
		"driver has no images": {func(h *house) { h.pics = nil }, client.SessionCreate{Image: "tools:1"}, "", "", "tools:1"},
	} {
		t.Run(name, func(t *testing.T) {
			h, g := imageHouse(t)
			tt.set(h)
			s, err := h.open().Create(t.Context(), alice, tt.req)
			switch {
			case tt.code == "" && err != nil:
				t.Fatal(err)
			case tt.code == "" && s.Image != tt.image:
				t.Errorf("image %q, want %q", s.Image, tt.image)
			case tt.code != "" && (codeOfErr(err) != tt.code || !strings.Contains(err.Error(), tt.text)):
				t.Errorf("got %v, want %s about %q", err, tt.code, tt.text)
			}
			if n := g.holders(); tt.code != "" && n != 0 {
				t.Errorf("%d hold an image", n)
			}
		})
	}
}

// A driver whose Engine has the images is given their ids, and no bound that it
// was not asked for.
func TestImageOfAnEngine(t *testing.T) {
	h, g := imageHouse(t)
	g.engine = true
	s, err := h.open().Create(t.Context(), alice, client.SessionCreate{Image: "tools:1"})
	if err != nil {
		t.Fatal(err)
	}
	if spec := h.host.box(s.ID).spec; spec.Image != galleryDigest || spec.Root != nil || spec.Limits.Disk != 0 {
		t.Errorf("the driver got %+v", spec)
	}
}

func TestImagesAreForAdmins(t *testing.T) {
	h, _ := imageHouse(t)
	m := h.open()
	if all, err := m.Images.Images(t.Context(), alice); err != nil || len(all) != 1 {
		t.Errorf("list: %v, %v", all, err)
	}
	_, pull := m.Images.PullImage(t.Context(), alice, client.ImagePull{Ref: "x:1"}, nil)
	_, imp := m.Images.ImportImage(t.Context(), alice, "x:1", strings.NewReader(""))
	for what, err := range map[string]error{"pull": pull, "import": imp, "remove": m.Images.RemoveImage(t.Context(), alice, "tools:1")} {
		if codeOfErr(err) != client.CodeForbidden {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got, err := m.Images.PullImage(t.Context(), root, client.ImagePull{Ref: "x:1"}, nil); err != nil || got.Names[0] != "x:1" {
		t.Errorf("pull: %+v, %v", got, err)
	}
	if _, err := m.Images.PullImage(t.Context(), root, client.ImagePull{Ref: "broken:1"}, nil); codeOfErr(err) != client.CodeInternal || strings.Contains(err.Error(), "secret") {
		t.Errorf("broken: %v", err)
	}
	if got, err := m.Images.ImportImage(t.Context(), root, "y:1", strings.NewReader("x")); err != nil || got.Names[0] != "y:1" {
		t.Errorf("import: %+v, %v", got, err)
	}
}

// What the store's errors quote of an image or a registry acts on no terminal.
func TestImageErrorIsPlain(t *testing.T) {
	err := imageError(errors.Join(image.ErrRefused, errors.New("entry \x1b]52;c\a \u202e \xff"+strings.Repeat("x", 5000))))
	if says := err.Error(); !errors.Is(err, fault.Invalid) || len(says) > 1100 || strings.ContainsAny(says, "\x1b\a\u202e") || !utf8.ValidString(says) {
		t.Errorf("got %q", err)
	}
	if own := errors.New("ours"); !errors.Is(imageError(own), own) || imageError(nil) != nil {
		t.Error("an error of our own has become a client's")
	}
}
