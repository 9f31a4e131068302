package shell

import (
	"slices"
	"strings"
	"testing"
)

// TestOptionsThatNameFiles: a file that an option names is listed, however it is written.
func TestOptionsThatNameFiles(t *testing.T) {
	t.Parallel()
	for program, table := range fileOptions {
		text := func(option string) bool { _, is := textOptions[option]; return is && program == "curl" }
		if program == "time" {
			program = "/usr/bin/time" // the other one is bash's own
		}
		for _, letter := range table.letters {
			for _, way := range []string{"-L F", "-LF", "-L'F'", "-vL F", "-vLF", "-L @F", "-L@F"} {
				if text("-"+string(letter)) && !strings.Contains(way, "@") {
					continue
				}
				namesFile(t, program+" "+strings.Replace(way, "L", string(letter), 1))
			}
		}
		for _, name := range table.names {
			ways := []string{name + " F", name + " 'F'", name + " @F"}
			if strings.HasPrefix(name, "--") {
				ways = append(ways, name+"=F", name+"=@F", name[:len(name)-1]+"=F", name[:4]+" F", name[:3]+"=F")
			}
			for _, way := range ways {
				if text(name) && !strings.Contains(way, "@") {
					continue
				}
				namesFile(t, program+" "+way)
			}
		}
	}
	for _, text := range []string{
		"curl -F x=@F http://h", "curl -F 'x=<F;type=a/b' http://h", "curl -F 'x=@a,F' http://h", "curl --form x=@F", "curl --data-urlencode x@F", "curl -sd@F", "curl file:///m/F", "curl FILE://h/m/F", "wget -e post_file=F", "wget --execute 'post_file = F'", "git clone file:///m/F d",
		"gcc @./F -o x", "strings @F", "x @/m/F", "x --y=@/m/F", "x y=@/m/F", `x y=\</m/F`, "x -y@../F", "x -zxf../F", "tar xTf a F", "tar xf a F", "grep --fil=F x", "grep -ie x F", "grep -iex F", "grep -ee F", "grep --regex=x F", "grep --exp x F",
		"rg --files F", "sed -n --fil F x", "jq -rf F", "awk --fil=F x", "sort -n 5 F", "find . -newer F",
	} {
		namesFile(t, text)
	}
	for _, text := range []string{"x -I$z/y", "curl -K$z", "curl -d $x", `curl -d "@$x"`, `curl -F "a=$x"`, `sort --files0-from=$x`, "sort --files0-$x", "curl 'file:///{m,n}/s'", "curl file:///%6d/s", "x @$x", "wget -qi$x", "git commit -F $x"} {
		if r := Scan(text, Options{Home: "/home/tool"}); !slices.Contains(names(r.Paths), "") {
			t.Errorf("%s: paths %+v", text, r.Paths)
		}
	}
	for _, text := range []string{`curl -H "Authorization: Bearer $x" https://h/a`, `curl -d "a=$x" https://h`, "curl -H 'a: b' -d a=b -F x=y https://h/a", "git commit -qm x", "wget -q https://h/a"} {
		if r := Scan(text, Options{Home: "/home/tool"}); len(r.Paths) != 0 && strings.Contains(text, "curl") || slices.Contains(names(r.Paths), "") {
			t.Errorf("%s: paths %+v", text, r.Paths)
		}
	}
}

// namesFile checks that text, whatever else it names, names the file F.
func namesFile(t *testing.T, text string) {
	t.Helper()
	r := Scan(text, Options{Home: "/home/tool"})
	if !slices.ContainsFunc(r.Paths, func(p Path) bool { return p.Name == "F" || strings.HasSuffix(p.Name, "/F") }) {
		t.Errorf("%s: paths %+v", text, r.Paths)
	}
}
