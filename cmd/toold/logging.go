package main

import (
	"io"
	"log/slog"
	"os"

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
		return slog.New(newJournalHandler(journalSocket, stderr))
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
