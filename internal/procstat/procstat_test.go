package procstat

import (
	"os"
	"strings"
	"testing"
)

// TestHostileNames: whatever a process is called, the fields behind its name are the kernel's.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	rest := "R 1 77 3 34816 88"
	for i := 9; i <= 52; i++ {
		rest += " 9"
	}
	for _, name := range []string{"cat", ") Z 5 6 7 8 9", "a (b) c", "\n)", "", ")("} {
		stat := []byte("4 (" + name + ") " + rest + "\n")
		if s, err := Text(stat, State); err != nil || s != "R" {
			t.Errorf("%q: state %q, %v", name, s, err)
		}
		for field, want := range map[int]int64{Group: 77, Terminal: 34816, Foreground: 88, Start: 9, ArgEnd: 9, EnvEnd: 9} {
			if n, err := Number(stat, field); err != nil || n != want {
				t.Errorf("%q: field %d is %d, %v, want %d", name, field, n, err, want)
			}
		}
	}
	for _, bad := range []string{"", "4", "4 (cat", "4 (cat)", "4 cat " + rest, "4 (cat) R 1"} {
		if s, err := Text([]byte(bad), Start); err == nil {
			t.Errorf("%q: %s", bad, s)
		}
	}
	if _, err := Text([]byte("4 (cat) "+rest), 2); err == nil {
		t.Error("a name is given, which nobody can tell from the rest")
	}
	if n, err := Number([]byte("4 (cat) x"), State); err == nil {
		t.Errorf("a text is the number %d", n)
	}
}

func TestOwn(t *testing.T) {
	t.Parallel()
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Skip(err)
	}
	if s, err := Text(stat, State); err != nil || !strings.Contains("RSD", s) {
		t.Errorf("%s: state %q, %v", stat, s, err)
	}
	if n, err := Number(stat, Start); err != nil || n <= 0 {
		t.Errorf("%s: start %d, %v", stat, n, err)
	}
}
