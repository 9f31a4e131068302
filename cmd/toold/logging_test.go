package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestLogFormats(t *testing.T) {
	for how, want := range map[string]string{"json": `"msg":"hello","n":1`, "text": `msg=hello n=1`, "auto": `"msg":"hello"`} {
		var b bytes.Buffer
		newLogger(how, &b).Info("hello", "n", 1)
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s: got %q, want %q in it", how, b.String(), want)
		}
	}
}

// TestLogLineStaysOne: what a session says cannot look like another line.
func TestLogLineStaysOne(t *testing.T) {
	for _, how := range []string{"json", "text"} {
		var b bytes.Buffer
		newLogger(how, &b).Info("call ended", "title", "x\n{\"msg\":\"forged\"}\x1b[2J")
		if n := strings.Count(b.String(), "\n"); n != 1 || strings.Contains(b.String(), "\x1b") {
			t.Errorf("%s: got %q", how, b.String())
		}
	}
}
