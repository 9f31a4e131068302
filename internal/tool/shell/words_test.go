package shell

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestFromWords(t *testing.T) {
	for want, words := range map[string][]string{
		"ls | wc -l":       {"bash", "-lc", "ls | wc -l"},
		"a b":              {"/usr/bin/sh", "-c", "a b"},
		"zsh -lc 'a b'":    {"zsh", "-lc", "a b"},
		"bash -c a b":      {"bash", "-c", "a", "b"},
		"git commit -m ''": {"git", "commit", "-m", ""},
		"":                 nil,
	} {
		if got := FromWords(words); got != want {
			t.Errorf("%q: got %q, want %q", words, got, want)
		}
	}
}

// TestFromWordsReal: bash makes the same words of the text.
func TestFromWordsReal(t *testing.T) {
	for range 20 {
		words := []string{"printf", "%s\\0"}
		for range 20 {
			var w strings.Builder
			for range rand.IntN(12) {
				w.WriteRune([]rune("ab '\"\\$`*?~!#&;|<>()[]{}=\n\t\r\x01é\u202e-")[rand.IntN(32)])
			}
			words = append(words, w.String())
		}
		bash := exec.Command("bash", "-c", FromWords(words))
		bash.Env = append(os.Environ(), "LC_ALL=C.UTF-8") // as in a sandbox; it says what $'\u202e' is
		out, err := bash.Output()
		if want := strings.Join(words[2:], "\x00") + "\x00"; err != nil || string(out) != want {
			t.Fatalf("%q: got %q, %v", words[2:], out, err)
		}
	}
}
