package agents

import (
	"path"
	"strings"
)

// treeFiles are the files that the calls of TestDiffer find, in any call that does not go
// on from another. The times of the files are in the order of their names.
var treeFiles = map[string]string{
	"a.txt":              "one\ntwo\nthree\n",
	"b.txt":              "one\none\none\n",
	"empty.txt":          "",
	"newline.txt":        "\n",
	"no-newline.txt":     "one\ntwo",
	"crlf.txt":           "one\r\ntwo\r\nthree\r\n",
	"mixed.txt":          "one\r\ntwo\nthree\r\n",
	"bom.txt":            "\ufeffone\ntwo\n",
	"bom-crlf.txt":       "\ufeffone\r\ntwo\r\n",
	"unicode.txt":        "naïve café\n“quoted” — dash…\n日本語 текст 🙂\n",
	"tabs.go":            "package tabs\n\nfunc F(x int) int {\n\tif x > 0 {\n\t\treturn x\n\t}\n\treturn -x\n}\n",
	"spaces.py":          "def f(x):\n    if x:\n        return 1\n    return 2\n\n\ndef g(x):\n    if x:\n        return 1\n    return 3\n",
	"trailing.txt":       "one  \ntwo\t\nthree\n",
	"dup.txt":            "a\nb\na\nb\na\n",
	"regex.txt":          "a.b\na+b\n(a|b)\n$100 and $1\n\\n is not a newline\n",
	"quotes.txt":         "say \"hello\" and 'bye'\n",
	"with space.txt":     "a name with a space\n",
	"sub dir/in it.txt":  "deep\n",
	"src/main.go":        "package main\n\nimport \"fmt\"\n\nfunc main() {\n\tfmt.Println(\"hello\")\n}\n",
	"src/util.ts":        "export const one = 1;\nexport const two = 2;\n",
	"src/util.tsx":       "export const One = () => null;\n",
	"src/deep/er/x.go":   "package x\n\n// NOTE: nothing\n",
	"src/deep/er/x.js":   "const note = 1; // NOTE\n",
	"lib/util.js":        "module.exports = { one: 1 };\n",
	".hidden/secret.txt": "hidden one\n",
	".dotfile":           "dot one\n",
	"日本/文.txt":           "unicode name\n",
	"binary.bin":         "\x00\x01\x02\xff\xfebinary one\x00",
	"latin1.txt":         "caf\xe9\n",
	"nul.txt":            "one\x00two\n",
	"control.txt":        "bell\a and esc\x1b[31mred\x1b[0m\n",
	"p.png":              "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\xdacd\xf8\xcfP\x0f\x00\x03\x86\x01\x80Z4}k\x00\x00\x00\x00IEND\xaeB`\x82",
	"doc.pdf":            "%PDF-1.4\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n",
	"long-line.txt":      "short\n" + strings.Repeat("x", 5000) + "\nshort\n",
	"lines.txt":          numbered(3000),
	"wide.txt":           strings.Repeat(strings.Repeat("w", 199)+"\n", 1000),
	"many/README":        "many files\n",
}

var treeLinks = map[string]string{"link.txt": "a.txt", "link-dir": "src", "link-nowhere": "gone", "link-out": "/etc/hostname"}

var treeDirs = []string{"empty-dir"}

// treeAsMade is what filesOf gives of the tree.
var treeAsMade = make(map[string]string)

func init() {
	for i := range 120 {
		treeFiles["many/"+numberedName(i)] = "file\n"
	}
	for name, content := range treeFiles {
		treeAsMade[name] = "file " + content
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			treeAsMade[dir] = "directory"
		}
	}
	for name, to := range treeLinks {
		treeAsMade[name] = "link to " + to
	}
	for _, name := range treeDirs {
		treeAsMade[name] = "directory"
	}
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("line " + numberedName(i) + "\n")
	}
	return b.String()
}

func numberedName(i int) string {
	const digits = "0123456789"
	s := []byte("0000")
	for at := len(s) - 1; i > 0; at, i = at-1, i/10 {
		s[at] = digits[i%10]
	}
	return string(s)
}
