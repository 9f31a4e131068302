package shell

import "testing"

func TestVisible(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"git commit -m 'a b'\n\techo c", "git commit -m 'a b'\n\techo c"},
		{"a\x1b[2Kb", `a\u{1b}[2Kb`},
		{"a\rb", `a\u{d}b`},
		{"a\x00b\x7f", `a\u{0}b\u{7f}`},
		{"echo \u202etxt.exe", `echo \u{202e}txt.exe`},
		{"a\u2066b\u2069", `a\u{2066}b\u{2069}`},
		{"rm\u00a0-rf", `rm\u{a0}-rf`},
		{"a\u200bb\ufeff", `a\u{200b}b\u{feff}`},
		{"a\u2028b", `a\u{2028}b`},
		{"t\u043euch x", `t\u{43e}uch x`},
		{"\u043f\u0440\u0438\u0432\u0435\u0442.txt", "привет.txt"},
		{"na\u00efve caf\u00e9 \u65e5\u672c", "naïve café 日本"},
		{"e\u0301", `e\u{301}`},
		{"\u201ca; b\u201d", `\u{201c}a; b\u{201d}`},
		{"a \uff1b b", `a \u{ff1b} b`},
		{"\U0001d42b\U0001d426 x", "\U0001d42b\U0001d426 x"},
		{"\U0001d42bm x", `\u{1d42b}m x`},
		{"a\xffb", `a\xffb`},
		{"\u3164=1", `\u{3164}=1`},
		{"\U000e0041", `\u{e0041}`},
		{"", ""},
	} {
		if got := Visible(tc.text); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.text, got, tc.want)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, group := range [][]string{
		{"git status", "  git   status ", "git status # again", "git 'status'", "git \"status\"", "git st\\atus", "git \\\n  status", "git status\n"},
		{"echo 'a b'", `echo "a b"`, `echo a\ b`},
		{"a && b", "a&&b", "a &&\n  b"},
		{"x | y; z", "x|y\nz"},
		{"git commit -m \"it's\"", `git commit -m it\'s`},
		{"(broken", "  (broken\n"},
		{"$(a)", "$( a )", "$(a # x\n)"},
	} {
		want := Canonical(group[0])
		for _, text := range group[1:] {
			if got := Canonical(text); got != want {
				t.Errorf("%q: got %q, want %q as of %q", text, got, want, group[0])
			}
		}
	}
	for _, pair := range [][2]string{
		{"echo *", "echo '*'"},
		{"echo $x", "echo '$x'"},
		{"a;b", "a&b"},
		{"echo ~", "echo '~'"},
		{"x=1", "'x=1'"},
		{"echo a b", "echo 'a b'"},
		{"cat <<A\n$x\nA", "cat <<'A'\n$x\nA"},
		{"echo ''", "echo"},
		{"if a; then b; fi", "'if' a"},
		{"echo {a,b}", "echo '{a,b}'"},
	} {
		if Canonical(pair[0]) == Canonical(pair[1]) {
			t.Errorf("%q and %q are not the same, but both become %q", pair[0], pair[1], Canonical(pair[0]))
		}
	}
}
