package server

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// A pull tells of its progress and ends with the image or with why there is none,
// also when that comes after some progress.
func TestPullImage(t *testing.T) {
	d := start(t, nil)
	c := d.client(client.Options{})
	for _, tt := range []struct {
		ref    string
		stages int
		code   client.Code
	}{
		{"slow:1", 1, ""},
		{"gone:1", 0, client.CodeNotFound},
		{"gone:2", 1, client.CodeNotFound},
		{"no name", 0, client.CodeInvalidRequest},
		{"", 0, client.CodeInvalidRequest},
	} {
		var told []client.ImageProgress
		got, err := c.PullImage(t.Context(), client.ImagePull{Ref: tt.ref}, func(p client.ImageProgress) { told = append(told, p) })
		if tt.code != "" {
			if e := asError(t, err); e.Code != tt.code || e.Message == "" {
				t.Errorf("%q: %v, want %s", tt.ref, err, tt.code)
			}
		} else if err != nil || got.Names[0] != tt.ref {
			t.Errorf("%q: %+v, %v", tt.ref, got, err)
		}
		if len(told) != tt.stages || tt.stages > 0 && (told[0] != client.ImageProgress{Stage: "download", Layer: 1, Layers: 2, Bytes: 5, Total: 10}) {
			t.Errorf("%q: progress %+v", tt.ref, told)
		}
	}
}

// An archive may be longer than any other body, but not without end.
func TestImportImage(t *testing.T) {
	const most = 100 << 10 // see TestFiles
	d := start(t, func(c *Config) { c.MaxBody, c.MaxFile, c.MaxImage = 1<<10, 1<<10, most })
	c := d.client(client.Options{})
	got, err := c.ImportImage(t.Context(), "", bytes.NewReader(make([]byte, most)))
	if err != nil || got.Size != most {
		t.Errorf("a large one: %+v, %v", got, err)
	}
	for name, r := range map[string]io.Reader{
		"of known length": bytes.NewReader(make([]byte, most+1)),
		"of unknown":      io.LimitReader(zeros{}, most+1),
	} {
		if _, err := c.ImportImage(t.Context(), "", r); asError(t, err).Status != 413 {
			t.Errorf("too long, %s: %v", name, err)
		}
	}
	if _, err := c.ImportImage(t.Context(), "../etc", strings.NewReader("x")); asError(t, err).Code != client.CodeInvalidRequest {
		t.Errorf("a bad name: %v", err)
	}
}

// Names with slashes and digests are one part of the path.
func TestRemoveImage(t *testing.T) {
	d := start(t, nil)
	c := d.client(client.Options{})
	if err := c.RemoveImage(t.Context(), fakeImage); err != nil {
		t.Error(err)
	}
	for ref, code := range map[string]client.Code{
		fakeImage: client.CodeNotFound, "host:5000/a/b@sha256:00": client.CodeNotFound, "a b": client.CodeInvalidRequest, "..": client.CodeInvalidRequest,
	} {
		if err := c.RemoveImage(t.Context(), ref); asError(t, err).Code != code {
			t.Errorf("%s: %v, want %s", ref, err, code)
		}
	}
	if all, err := c.ListImages(t.Context()); err != nil || len(all.Items) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
}
