package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/answer"
)

const (
	callsURI    = "toold://calls/"
	worktreeAt  = "toold://worktree/"
	outputBelow = "/output"
	// maxResource bounds a resource in bytes; what is longer is read in parts by the tools.
	maxResource = 8 << 20
)

func (s *Server) addResources() {
	s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "output", Title: "The whole output of a call", MIMEType: "text/plain",
		URITemplate: callsURI + "{call_id}" + outputBelow,
		Description: "What a call has printed, uncut, up to 8 MiB.",
	}, s.readOutput)
	s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "file", Title: "A file of the worktree",
		URITemplate: worktreeAt + "{+path}",
		Description: "A file as it is, up to 8 MiB. The rules for reading files hold.",
	}, s.readFile)
}

func worktreeURI(path string) string {
	return (&url.URL{Scheme: "toold", Host: "worktree", Path: "/" + strings.TrimPrefix(path, "/")}).String()
}

// outputLink leads to the whole output of a call.
func outputLink(c *client.Call) *sdk.ResourceLink {
	link := &sdk.ResourceLink{
		URI: callsURI + c.ID + outputBelow, Name: "output", Title: "The whole output of " + c.ID, MIMEType: "text/plain",
	}
	if total, ok := c.Metadata["total_bytes"].(float64); ok {
		size := int64(total)
		link.Size = &size
	}
	return link
}

func (s *Server) readOutput(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	uri := req.Params.URI
	id, _ := strings.CutSuffix(strings.TrimPrefix(uri, callsURI), outputBelow)
	c, err := s.ownCall(ctx, id)
	if err != nil {
		return nil, resourceError(uri, err)
	}
	r, err := s.cfg.Client.CallOutput(ctx, c.ID, client.OutputQuery{})
	if err != nil {
		return nil, resourceError(uri, err)
	}
	return contents(uri, r)
}

func (s *Server) readFile(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	uri := req.Params.URI
	path, err := url.PathUnescape(strings.TrimPrefix(uri, worktreeAt))
	if err != nil || !filepath.IsLocal(path) { // its name says that it is in the worktree
		return nil, sdk.ResourceNotFoundError(uri)
	}
	// A rule that asks may keep it waiting, as it does with any call.
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Wait)
	defer cancel()
	r, _, err := s.cfg.Client.GetFile(ctx, s.cfg.Session, path)
	if err != nil {
		return nil, resourceError(uri, err)
	}
	return contents(uri, r)
}

// contents reads one resource whole.
func contents(uri string, r io.ReadCloser) (*sdk.ReadResourceResult, error) {
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxResource+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", uri, err)
	}
	if len(data) > maxResource {
		return nil, fmt.Errorf("%s is larger than 8 MiB: read it in parts with the tools", uri)
	}
	c := &sdk.ResourceContents{URI: uri, MIMEType: http.DetectContentType(data)}
	if utf8.Valid(data) {
		c.Text = string(data)
	} else {
		c.Blob = data
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}, Cacheable: sdk.Cacheable{CacheScope: "private"}}, nil
}

// resourceError is what a client is told. A file that is not there is so in the protocol's
// own words.
func resourceError(uri string, err error) error {
	switch e := answer.Of(wordAway(err)); {
	case e == nil:
		return err
	case e.Code == client.CodeNotFound:
		return sdk.ResourceNotFoundError(uri)
	default:
		return errors.New(e.Text())
	}
}
