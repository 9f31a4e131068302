package socks_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/toold/toold/internal/egress/socks"
	"github.com/toold/toold/internal/endpoint"
)

type talk struct {
	io.Reader
	bytes.Buffer
}

func (t *talk) Read(p []byte) (int, error) { return t.Reader.Read(p) }

func named(host string) string { return "\x05\x01\x00\x03" + string([]byte{byte(len(host))}) + host }

func TestRead(t *testing.T) {
	const begin = "\x05\x02\x02\x00"
	for _, tt := range []struct{ in, want, reply string }{
		{begin + named("API.Example.Com.") + "\x01\xbb", "api.example.com:443", "\x05\x00"},
		{begin + "\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50", "192.0.2.1:80", "\x05\x00"},
		{begin + "\x05\x01\x00\x04" + strings.Repeat("\x00", 10) + "\xff\xff\x0a\x00\x00\x01\x00\x16", "10.0.0.1:22", "\x05\x00"},
		{begin + named("2130706433") + "\x00\x50", "127.0.0.1:80", "\x05\x00"},
		{begin + named("0x7f.1") + "\x00\x50", "127.0.0.1:80", "\x05\x00"},
		{begin + named("a b") + "\x00\x50", "", "\x05\x00\x05\x08"},
		{begin + named("good@169.254.169.254") + "\x00\x50", "", "\x05\x00\x05\x08"},
		{begin + named("a\x00.example.com") + "\x00\x50", "", "\x05\x00\x05\x08"},
		{begin + named("") + "\x00\x50", "", "\x05\x00\x05\x08"},
		{begin + "\x05\x02\x00\x01\xc0\x00\x02\x01\x00\x50", "", "\x05\x00\x05\x07"}, // BIND
		{begin + "\x05\x03\x00\x01\xc0\x00\x02\x01\x00\x50", "", "\x05\x00\x05\x07"}, // UDP
		{begin + "\x05\x01\x00\x07", "", "\x05\x00\x05\x08"},
		{begin + "\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x00", "", "\x05\x00\x05\x01"},
		{"\x05\x01\x02", "", "\x05\xff"},
		{"\x04\x01\x00\x50", "", ""},
		{"GET / HTTP/1.1\r\n", "", ""},
		{"", "", ""},
	} {
		c := &talk{Reader: strings.NewReader(tt.in + "behind")}
		to, err := socks.Read(c)
		got := ""
		if err == nil {
			got = to.String()
			if rest, _ := io.ReadAll(c); string(rest) != "behind" {
				t.Errorf("%q: %q is left", tt.in, rest)
			}
		}
		if got != tt.want || !strings.HasPrefix(c.String(), tt.reply) || (len(c.String()) > 2) != (len(tt.reply) > 2) {
			t.Errorf("%q: to %q, error %v, answered %q", tt.in, got, err, c.String())
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\x05\x01\x00" + named("api.example.com") + "\x01\xbb"))
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50"))
	f.Fuzz(func(t *testing.T, in []byte) {
		to, err := socks.Read(&talk{Reader: bytes.NewReader(in)})
		if err != nil {
			return
		}
		again, err := endpoint.Parse(to.String())
		if err != nil || again != to {
			t.Errorf("%q leads to %q, which is read as %q, %v", in, to, again, err)
		}
	})
}
