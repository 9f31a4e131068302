package tomltext

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// strange has the signs of nesting where they are none, and the ends of strings
// that are easily taken for beginnings.
var strange = func() []string {
	brackets, dots := strings.Repeat("[{", 40), strings.Repeat(".", 40)
	var all []string
	for _, s := range []string{brackets, dots, "'" + brackets, brackets + `\"` + brackets, `\\`} {
		all = append(all, fmt.Sprintf("a = \"%s\"\nb = 1\n", s))
		all = append(all, fmt.Sprintf("a = \"\"\"\n%s\"\"\"\"\"\nb = 1\n", s))
	}
	return append(all,
		"a = '"+brackets+"'\n",
		"a = '''\n"+brackets+"'"+dots+"'''''\nb = '"+brackets+"'\n",
		"a = '\\'\nb = '"+brackets+"'\n",
		"a = ''\nb = '"+brackets+"'\nc = \"\"\nd = \"\"\"\"\"\" # "+brackets+"\n",
		"# "+brackets+dots+"\n\"a"+brackets+"\" = 1\n'"+dots+"'.b = [1.5, 2.5]\n",
		strings.Repeat("[[x]]\na.b = [[1.5], [{ c.d = 1 }]]\n", 40),
	)
}()

// TestStrangeIsRead: no text is refused for what stands in its strings.
func TestStrangeIsRead(t *testing.T) {
	for _, doc := range strange {
		if _, err := Parse("f", []byte(doc)); err != nil {
			t.Errorf("%s%v", doc, err)
		}
	}
}

// TestHostileText has texts of the shapes that cost readers most. They are refused
// at the line where they are too much, before they cost anything.
func TestHostileText(t *testing.T) {
	const size = 1 << 20
	const deep = "f:2: is nested more than 16 deep: remove what is deeper"
	const many = "there are more than 50000 keys and elements up to here: make the text shorter"
	for name, tt := range map[string]struct{ doc, want string }{
		"open arrays":        {"\na = " + strings.Repeat("[", size), deep},
		"arrays":             {"\na = " + strings.Repeat("[", size/2) + strings.Repeat("]", size/2), deep},
		"arrays on lines":    {"\na = " + strings.Repeat("[\n", size/2), "f:18: is nested more than 16 deep: remove what is deeper"},
		"inline tables":      {"\na = " + strings.Repeat("{a=", size/4) + "1" + strings.Repeat("}", size/4), deep},
		"dotted key":         {"\na" + strings.Repeat(".a", size/2) + " = 1\n", deep},
		"quoted dotted key":  {"\na" + strings.Repeat(".'a'", size/4) + " = 1\n", deep},
		"header":             {"\n[a" + strings.Repeat(".a", size/2) + "]\n", deep},
		"header of an array": {"\n[[a" + strings.Repeat(".a", size/2) + "]]\n", deep},
		"after a string":     {"b = ''\na = " + strings.Repeat("[", size), deep},
		"elements":           {"a = [" + strings.Repeat("1,", size/2) + "]\n", "f:1: " + many},
		"inline elements":    {"a = [" + strings.Repeat("{},", size/3) + "]\n", "f:1: " + many},
		"tables":             {strings.Repeat("[[a]]\n", size/6), "f:25001: " + many},
		"keys":               {strings.Repeat("a.a=1\n", size/6), "f:25001: " + many},
		"deep tables":        {strings.Repeat("[[a.a.a.a.a.a.a.a]]\n", size/20), "f:5556: " + many},
	} {
		took, err := allocated(tt.doc)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %.200v, want %s", name, err, tt.want)
		}
		if took > 2<<20 { // a copy of the text is one
			t.Errorf("%s: took %d bytes to refuse", name, took)
		}
	}
	// The most that is read takes no multiple of what a long list of rules does.
	for name, doc := range map[string]string{
		"tables":  strings.Repeat("[[a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a]]\n", maxParts/20),
		"strings": "a = '" + strings.Repeat("[", size) + "'\n",
		"inline":  "a = [" + strings.Repeat(strings.Repeat("{a=", 14)+"1"+strings.Repeat("}", 14)+",", maxParts/43) + "]\n",
		"keys":    numbered("a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.b%d=1\n", maxParts/17),
		"rules":   "[permission.bash]\n" + numbered("'a%d *' = { action = 'ask', reason = 'x' }\n", 5000),
	} {
		took, err := allocated(doc)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if took > 256<<20 {
			t.Errorf("%s: took %d bytes to read", name, took)
		}
		t.Logf("%s: %d bytes of text, %d KiB allocated", name, len(doc), took>>10)
	}
}

func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// allocated is what it takes to read doc, in bytes.
func allocated(doc string) (uint64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Parse("f", []byte(doc))
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}
