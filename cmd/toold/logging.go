package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/term"
)

// newLogger makes the logger of daemon.log = how.
func newLogger(how string, stderr io.Writer) *slog.Logger {
	if how == "auto" {
		how = detectLog(stderr)
	}
	switch how {
	case "journal":
		return slog.New(&journalHandler{})
	case "text":
		return slog.New(slog.NewTextHandler(stderr, nil))
	}
	return slog.New(slog.NewJSONHandler(stderr, nil))
}

func detectLog(stderr io.Writer) string {
	f, ok := stderr.(*os.File)
	if !ok {
		return "json"
	}
	if is, err := journal.StderrIsJournalStream(); err == nil && is && f == os.Stderr {
		return "journal"
	}
	if term.IsTerminal(int(f.Fd())) {
		return "text"
	}
	return "json"
}

// journalHandler sends records to journald with each attribute as a field, so
// that `journalctl TOOLD_SESSION=ses_…` finds all lines of a session.
type journalHandler struct {
	fields map[string]string
	prefix string // of groups
}

// Enabled implements slog.Handler.
func (h *journalHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle implements slog.Handler. The message carries the attributes too, for
// those who only look at messages.
func (h *journalHandler) Handle(_ context.Context, r slog.Record) error {
	fields := make(map[string]string, len(h.fields)+r.NumAttrs())
	text := r.Message
	keep := func(key, value string) {
		fields[journalField(key)] = value
		text += fmt.Sprintf(" %s=%q", key, value)
	}
	for _, key := range slices.Sorted(maps.Keys(h.fields)) {
		keep(key, h.fields[key])
	}
	r.Attrs(func(a slog.Attr) bool {
		flatten(h.prefix, a, keep)
		return true
	})
	return journal.Send(text, priority(r.Level), fields)
}

// WithAttrs implements slog.Handler.
func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := &journalHandler{fields: make(map[string]string, len(h.fields)+len(attrs)), prefix: h.prefix}
	maps.Copy(c.fields, h.fields)
	for _, a := range attrs {
		flatten(h.prefix, a, func(key, value string) { c.fields[key] = value })
	}
	return c
}

// WithGroup implements slog.Handler.
func (h *journalHandler) WithGroup(name string) slog.Handler {
	return &journalHandler{fields: h.fields, prefix: h.prefix + name + "_"}
}

func flatten(prefix string, a slog.Attr, keep func(key, value string)) {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		keep(prefix+a.Key, v.String())
		return
	}
	for _, sub := range v.Group() {
		flatten(prefix+a.Key+"_", sub, keep)
	}
}

// journalField makes a name that journald takes: capitals, digits and "_".
func journalField(key string) string {
	return "TOOLD_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z' || r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
}

func priority(l slog.Level) journal.Priority {
	switch {
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	case l >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}
