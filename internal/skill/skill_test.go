package skill

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
)

// write makes files below a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func skillText(name, more string) string {
	return "---\nname: " + name + "\ndescription: about " + name + "\n" + more + "---\nDo " + name + ".\n"
}

// TestParse: front matter as it is written, and as it must not be.
func TestParse(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"---\nname: a-1\ndescription: words\n---\n\nbody\n---\nmore\n", "a-1|words||body\n---\nmore"},
		{"\uFEFF---\r\nname: a\r\ndescription: \"x: y\"\r\n---\r\nbody", "a|x: y||body"},
		{"---\nname: a\ndescription: >-\n  two\n  lines\nlicense: MIT\nmetadata:\n  author: x\nallowed-tools: bash read\n---", "a|two lines|bash read|"},
		{"---\nname: a\ndescription: d\nallowed-tools:\n- bash\n- Bash(git:*)\n---\nx", "a|d|bash, Bash(git:*)|x"},
		{"---\nname: a\ndescription: \"e\\e[31m\"\n---\nx", "a|e\uFFFD[31m||x"},
		{"name: a", "error: its first line is not ---"},
		{"", "error: its first line is not ---"},
		{"---\nname: a\ndescription: d\n", "error: no line --- ends"},
		{"---\n---\n", `error: its name ""`},
		{"---\nname: ../a\ndescription: d\n---\n", "error: its name"},
		{"---\nname: a--b\ndescription: d\n---\n", "error: its name"},
		{"---\nname: " + strings.Repeat("a", 65) + "\ndescription: d\n---\n", "error: its name"},
		{"---\nname: a\n---\n", "error: it has no description"},
		{"---\nname: a\nname: b\ndescription: d\n---\n", "error: its front matter: "},
		{"---\nname: [a]\ndescription: d\n---\n", "error: its front matter: "},
		{"---\nname: a\ndescription: d\nallowed-tools: {a: b}\n---\n", "error: its allowed-tools are neither"},
		{"---\nname: a\ndescription: d\nx: " + strings.Repeat("y", maxFront) + "\n---\n", "error: its front matter has more than"},
		{"---\nname: a\xff\n---\n", "error: it is not UTF-8"},
	} {
		s, body, err := parse([]byte(c.text))
		got := ""
		if err != nil {
			got = "error: " + err.Error()
		} else {
			got = s.Name + "|" + s.Description + "|" + s.Allowed + "|" + body
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%.60q: got %q, want %q", c.text, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(skillText("a", "allowed-tools: [x, y]\n")))
	f.Add([]byte("---\na: &a [*a, *a]\n---\n"))
	f.Add([]byte("---\nname: a\ndescription: |\n  x\n---"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, _, err := parse(text)
		if err != nil {
			return
		}
		if !nameForm.MatchString(s.Name) || len(s.Name) > maxName || s.Description == "" || len(s.Description) > maxDescription ||
			len(s.Allowed) > maxDescription || !utf8.ValidString(s.Description) || strings.ContainsAny(s.Description+s.Allowed, "\n\x1b") {
			t.Errorf("%q became %+v", text, s)
		}
	})
}

// TestLibrary: what is found, what is left out, and with which words.
func TestLibrary(t *testing.T) {
	one, two, out := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, out, map[string]string{"evil/SKILL.md": skillText("evil", ""), "secret": "s"})
	write(t, one, map[string]string{
		"a/SKILL.md": skillText("a", ""), "a/sub/b.txt": "b", "a/..c": "c", "b/SKILL.md": skillText("other", ""), "c/SKILL.md": "no",
		"README.md": "x", "d/notes": "x", "a/long": strings.Repeat("x", MaxFile+1), "a/full": strings.Repeat("x", MaxFile),
	})
	write(t, two, map[string]string{"a/SKILL.md": "---\nname: a\ndescription: second\n---\n", "z/SKILL.md": skillText("z", "")})
	for from, to := range map[string]string{
		"evil": out + "/evil", "a/secret": out + "/secret", "a/up": "../../" + filepath.Base(out) + "/secret", "a/within": "sub/b.txt", "a/beside": "../c/SKILL.md",
	} {
		if err := os.Symlink(to, filepath.Join(one, from)); err != nil {
			t.Fatal(err)
		}
	}
	for _, pipe := range []string{"a/pipe", "pipe"} {
		if err := syscall.Mkfifo(filepath.Join(one, pipe), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := Load([]string{one, two, filepath.Join(one, "missing")})
	names := ""
	for _, s := range l.All() {
		names += s.Name + ": " + s.Description + "; "
	}
	if want := "a: about a; z: about z; "; names != want {
		t.Errorf("got %q, want %q", names, want)
	}
	problems := strings.Join(l.Problems(), "\n")
	for _, want := range []string{"/b: its name is other", "/c: its first line", "/evil: ", "/a: an earlier skill", "missing: "} {
		if !strings.Contains(problems, want) {
			t.Errorf("no %q in\n%s", want, problems)
		}
	}
	if l.Left() != 5 || l.None() != "" {
		t.Errorf("%d left out, %q\n%s", l.Left(), l.None(), problems)
	}
	for file, want := range map[string]string{
		"sub/b.txt": "b", "within": "b", "..c": "c", "full": strings.Repeat("x", MaxFile), "long": "error: it has more than", "secret": "error: ", "up": "error: ", "beside": "error: ",
		"../c/SKILL.md": "error: it is not a path below", "sub/../sub/b.txt": "error: it is not a path below", "/etc/passwd": "error: it is not a path below", "sub": "error: it is not a regular file",
		"pipe": "error: it is not a regular file", "none": "error: ", "x\x00": "error: ",
	} {
		text, err := l.File("a", file)
		got := string(text)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want && (err == nil || !strings.HasPrefix(got, want)) {
			t.Errorf("%q: got %.80q, want %.80q", file, got, want)
		}
	}
	if _, err := l.File("aa", "x"); err == nil || !strings.Contains(err.Error(), `there is no skill "aa"`) {
		t.Error(err)
	}
	s, text, files, cut, err := l.Text("a")
	if err != nil || s.Name != "a" || text != "Do a." || cut || strings.Join(files, " ") != "..c full long sub/b.txt" {
		t.Errorf("%+v %q %q %v %v", s, text, files, cut, err)
	}
	// The text is that of now; a skill that has become another one is none.
	write(t, one, map[string]string{"a/SKILL.md": skillText("a", "") + "Now."})
	if _, text, _, _, _ = l.Text("a"); text != "Do a.\nNow." {
		t.Errorf("%q", text)
	}
	write(t, one, map[string]string{"a/SKILL.md": skillText("b", "")})
	if _, _, _, _, err = l.Text("a"); err == nil {
		t.Error("a skill with another's name was read")
	}
}

// TestBounds: more than is offered is counted.
func TestBounds(t *testing.T) {
	dir := t.TempDir()
	for i := range MaxSkills + maxProblems + 4 {
		name := fmt.Sprintf("s%03d", i)
		write(t, dir, map[string]string{name + "/SKILL.md": skillText(name, "")})
	}
	for i := range maxFiles + 1 {
		write(t, dir, map[string]string{fmt.Sprintf("s000/f%d", i): ""})
	}
	l := Load([]string{dir})
	if len(l.All()) != MaxSkills || len(l.Problems()) != maxProblems || l.Left() != maxProblems+4 {
		t.Errorf("%d skills, %d problems, %d left out", len(l.All()), len(l.Problems()), l.Left())
	}
	if _, _, files, cut, err := l.Text("s000"); err != nil || len(files) != maxFiles || !cut {
		t.Errorf("%d files, %v, %v", len(files), cut, err)
	}
}

// TestNone: why there is no skill.
func TestNone(t *testing.T) {
	dir := t.TempDir()
	var none *Library
	for want, l := range map[string]*Library{
		"names no directory": none, "[skills] paths": Load(nil), "there are no skills in " + dir: Load([]string{dir}), "can be used: " + dir + "/x": Load([]string{dir + "/x"}),
	} {
		if got := l.None(); !strings.Contains(got, want) || len(l.All()) != 0 {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestScripts: a skill with a file that may be run says so, and its own directory is opened.
func TestScripts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a/SKILL.md": skillText("a", ""), "a/bin/run": "x", "b/SKILL.md": skillText("b", ""), "b/text": "x"})
	if err := os.Chmod(filepath.Join(dir, "a/bin/run"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../a/bin", filepath.Join(dir, "b/bin")); err != nil {
		t.Fatal(err)
	}
	l := Load([]string{dir})
	for i, want := range map[int]bool{0: true, 1: false} {
		if s := l.All()[i]; s.Scripts != want || s.Place() != "/skills/"+s.Name {
			t.Errorf("%+v at %s", s, s.Place())
		}
	}
	own, err := l.Dir("a")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if names, err := own.Readdirnames(-1); err != nil || len(names) != 2 {
		t.Errorf("%q, %v", names, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "c", "../etc"} {
		if f, err := l.Dir(name); err == nil {
			t.Errorf("%s: opened %s", name, f.Name())
		}
	}
}
