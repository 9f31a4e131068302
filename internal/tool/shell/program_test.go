package shell

import (
	"slices"
	"strings"
	"testing"
)

// TestFiles: which words of a command are files that it runs.
func TestFiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"./x a": "./x", "d/x": "d/x", "x": "", "/usr/bin/x": "", "/opt/x": "/opt/x",
		"python3 x.py a.py": "x.py", "python3 -c x y": "", "python3 -m x y": "", "python3 -um x y": "", "python3 - x": "", "python3 -- x y": "x", "python3": "", "python3 -V": "",
		"python3 -W ignore x.py a": "x.py", "python3 -Wignore x.py": "x.py", "python3 -bW ignore x.py": "x.py", "python3 --check-hash-based-pycs always x.py": "x.py",
		"python3 --new a b c": "a b", "python3 --new=a b c": "b", "python3 $x": "", `python3 "$x" a`: "", "python3 $x a b": "a b", `python3 -W "$x" a b`: "a", "python3 -W $x a b": "a b",
		"python3 *.py a": "*.py", "sh d/*.sh": "d/*.sh", "./venv/bin/python x.py": "./venv/bin/python x.py", "./venv/bin/python -c x": "./venv/bin/python", "python3.12 x": "x", "python-3.12 x": "x", "python3.13t x": "x",
		"node -r ./a --import b s.js c": "./a b s.js", "node --require=./a s.js": "./a s.js", "node -r./a s.js": "./a s.js", "node -e x y": "", "node --eval=x y": "", "node --title x s.js": "s.js", "node inspect s.js": "s.js",
		"node --conditions=a/b s.js": "a/b s.js", "node --new=a/b s.js": "a/b s.js", "perl -MData::Dumper x.pl a": "x.pl", "perl -Mv5.36 -Ilib -I l2 x.pl": "lib l2 x.pl", "perl -lane x y": "", "perl -i.bak -pe x y": "", "perl -0777 -ne x y": "", "perl -F: x y": "x",
		"ruby -C d x.rb": "d x.rb", "ruby -Cd x.rb a": "d x.rb", "ruby -ne x y": "", "php -r x y": "", "php -S h:1 r.php": "r.php", "php -f x y": "x y", "bash -euo pipefail x a": "x", "bash +x x": "x", "sh -c x y": "", "bash -s x": "", "zsh x": "x",
		"deno run -A --config d.json x.ts a": "d.json x.ts", "deno run https://h/x.ts": "", "deno run jsr:@a/b": "", "deno x.ts": "x.ts", "deno task a/b": "", "deno eval x": "", "bun x.ts": "x.ts", "bun run build": "", "bun test a.test.ts": "", "bun --cwd d x.ts": "d x.ts",
		"go run ./cmd/x a": "./cmd/x", "go run . a": ".", "go run x.go y.go": "x.go", "go run example.com/x@v1": "", "go -C d run ./x": "d ./x", "go test ./...": "", "go build ./x": "", "java -jar a.jar b": "a.jar", "java -cp lib Main": "lib", "java X.java": "X.java",
		"awk -f x.awk y": "x.awk", "awk '{print}' y": "", "sed -n -f x y": "x", "sed s/a/b/ y": "", "sed -i.bak s/a/b/ y": "",
		"uv run x.py a": "x.py", "uv run pytest a/b": "", "uv run python x.py": "x.py", "uv run --with a -p 3.12 x.py": "x.py", "uv --directory d run x.py": "d x.py", "uv run --directory=d pytest": "", "uv pip install ./x": "", "uv run -m x y": "",
		"uv run --new x y.py": "y.py", "uv run ./v/python3 x.py": "./v/python3 x.py", "poetry run python x.py": "x.py", "poetry -C d run python x.py": "d x.py", "poetry run python -m x": "", "poetry install": "", "poetry run d/x": "d/x",
		"npx tsx x.ts": "x.ts", "npx -y -p a tsx@4.1 x.ts": "x.ts", "npx @a/b c": "", "npx a/b": "", "npx ./x": "./x", "npx tsc -p x.json": "", "npm exec -- tsx x.ts": "x.ts", "npm run tsx x.ts": "", "npm test": "", "yarn node x.js": "x.js", "yarn build": "",
		"pnpm --filter a exec tsx x.ts": "x.ts", "pnpm -C d tsx x.ts": "d x.ts", "pnpm install": "", "pnpm -C $d test": "", "bundle exec ruby x.rb": "x.rb", "bundle install": "", "cross-env A=./b node x.js": "x.js", "coverage run -m pytest": "", "coverage run x.py": "x.py",
		// An option that has no value, or has it in the same word, hides no file behind it.
		"go run -buildvcs ./x": "./x", "go run -buildvcs=false ./x": "./x", "go run -exec ./w ./x": "./w ./x", "go run -toolexec=./w ./x": "./w ./x", "go run -overlay o ./x": "o ./x", "julia -O x.jl": "x.jl", "julia -O3 --project x.jl": "x.jl", "julia --optimize x.jl": "x.jl", "expect -d x": "x", "expect -c a x": "x", "coverage run --timid x.py": "x.py",
		"gawk -o -f x y": "x", "gawk -p -d -L -f x": "x", "gawk -l l -e a y": "l", "gawk -o./w a": "./w", "luajit -j off x": "x", "luajit -joff x": "x", "luajit -O x": "x", "sed -l 5 -f x": "x", "sed data -f x": "x", "sed -n p data --file=x": "x", "sed --fil=x y": "x", "sed --fil x y": "x", "sed -- data -f x": "",
		"lua -e a x": "x", "lua -ea x": "x", "racket -m x": "x", "racket -l l x": "l x", "fish -d 3 x": "x", "fish -C a x": "x", "deno run --v8-flags x.ts": "x.ts", "Rscript --default-packages x": "x", "php -d auto_prepend_file=p x": "p x", "php -dauto_prepend_file=p x": "p x", "node --test-reporter ./r s.js": "./r s.js", "node --openssl-config c s.js": "c s.js", "node --env-file=e s.js": "e s.js",
		"perl -Mlib=./l x.pl": "./l x.pl", "perl -x./d x.pl": "./d x.pl", "perl -e 1 -I l x": "l", "ruby -e 1 -r ./l x": "./l", "node -e 1 -r ./l x": "./l", "python3 -X pycache_prefix=./c x.py": "pycache_prefix=./c x.py", "java @a -cp l Main": "a l", "java -Da=./b -jar c": "./b c", "uv run -p ./py x.py": "./py x.py", "uv run --env-file e x.py": "e x.py", "npx -p @a/b tsx x.ts": "x.ts", "sed --new x y": "x",
		"env A=1 python3 x.py": "x.py", "nice -n 5 uv run x.py": "x.py", ". x": "x", "source x": "x", "busybox sh x": "x",
	} {
		var got []string
		for _, c := range Scan(text, Options{Home: "/home/tool"}).Commands {
			if c.Program == nil {
				continue
			}
			for _, f := range c.Program.Files {
				got = append(got, f.Word)
			}
			if c.Program.As(words(c.Program)...) != c.Text {
				t.Errorf("%s: written again it is %q", text, c.Program.As(words(c.Program)...))
			}
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: files %q, want %q", text, got, want)
		}
	}
}

// TestIsSetting: what is taken for NAME=VALUE.
func TestIsSetting(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"of=f": true, "A_1.b-c=": true, "=a": false, "": false, "a": false, "-a=b": false, "1=a": false, ".a=b": false, "a/b=c": false, "é=a": false, "_=": true, "a b=c": false} {
		if isSetting(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func words(p *Program) []string {
	var all []string
	for _, f := range p.Files {
		all = append(all, f.Word)
	}
	return all
}

// TestFilesFromElsewhere: an option that says from where paths lead moves those behind it.
func TestFilesFromElsewhere(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ruby -C d x.rb": "d/x.rb", "cd e && ruby -C d x.rb": "e/d/x.rb", "ruby -C /d x.rb": "/d/x.rb", "poetry -C d run python x.py": "d/x.py", "uv --directory=d run x.py": "d/x.py", "go -C ./d run ./x": "d/./x",
		"ruby -C $d x.rb": "opaque", "ruby -C d/../e x.rb": "opaque", "cd $d; python3 x.py": "opaque", "python3 {a,b}.py": "opaque", "node -r ~other/x s.js": "opaque", "echo x | xargs python3": "opaque", "echo x | xargs node -r ./a": "opaque", "echo x | xargs npx": "opaque", "echo x | xargs sed -n": "opaque",
		"node -r $x s.js": "opaque", "node --require=$x s.js": "opaque", "perl -I$x y": "opaque", "java -javaagent:./a.jar -jar b.jar": "opaque", "uv --directo=$d run x.py": "opaque", "uv --directo d run x.py": "opaque", "echo x | xargs awk -v a=b": "opaque", "perl -Zq/r x.pl": "opaque",
		"echo x | xargs python3 x.py":                                     "x.py",
		"python3 --a b --a b --a b --a b --a b --a b --a b --a b --a b c": "opaque",
	} {
		r := Scan(text, Options{Home: "/home/tool"})
		if r.Opaque != (want == "opaque") {
			t.Errorf("%s: opaque %v (%s)", text, r.Opaque, r.Why)
		}
		if r.Opaque {
			continue
		}
		p := r.Commands[len(r.Commands)-1].Program
		if f := p.Files[len(p.Files)-1]; !slices.Equal(f.Names, []string{want}) || f.Moved != !strings.Contains(text, "xargs") {
			t.Errorf("%s: %+v, want %s", text, f, want)
		}
	}
}
