package testrig

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Command is one of the commands as agents write them.
type Command struct {
	Text   string
	Status int // that it ends with
}

// Corpus are the commands of internal/policy/testdata/corpus, which is dir.
func Corpus(t testing.TB, dir string) []Command {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "commands.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var all []Command
	for _, part := range strings.Split(string(text), "\n----")[1:] {
		status, command, _ := strings.Cut(part, "\n")
		c := Command{Text: strings.TrimSuffix(command, "\n")}
		if status != "" {
			if c.Status, err = strconv.Atoi(strings.TrimSpace(status)); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, c)
	}
	return all
}
