package shell

import (
	"path"
	"strings"
)

// interpreter is how a program is called that runs a file which an argument names, or another
// command.
type interpreter struct {
	options map[string]meaning
	// words are those behind which the file stands; only: without one of them there is none.
	words map[string]bool
	only  bool
	// looks: an operand is a file where it looks like one, and a word of the program's own else.
	looks bool
	// runs: the operand is a command, and a file where it looks like one.
	runs bool
	// named: a slash alone does not make a file of an operand: it may be the name of a package.
	named bool
	// plus: options may begin with a plus.
	plus bool
	// text: the operand is a program's text, so that options alone name files; they may stand behind it.
	text bool
	// lists: an operand behind a "@" is a file with arguments.
	lists bool
}

// meaning says what an option makes of the words behind it.
type meaning byte

const (
	unknown meaning = iota // it may have the next word as its value
	alone                  // it has no value
	glued                  // it has its value in the same word, or none
	valued                 // it has a value, in the same word or the next
	last                   // what is run is its value, a text or a module, and no file; what is behind that are arguments
	inline                 // what is run is its value, a text; there may be options behind it, and no file
	first                  // its value is a text that is run before the file
	loads                  // its value is a file that is run too, or a directory of such
	leads                  // its value is the directory that paths behind it lead from
	unclear                // it may load what its text does not say
)

// of reads a table row: options by their meaning, those of one letter without blanks in flags.
func of(flags string, lists ...string) *interpreter {
	in := &interpreter{options: make(map[string]meaning)}
	for i := range len(flags) {
		in.options["-"+flags[i:i+1]] = alone
	}
	means := map[string]meaning{"glued": glued, "value": valued, "last": last, "inline": inline, "first": first, "loads": loads, "moves": leads, "alone": alone}
	for _, list := range lists {
		kind, names, _ := strings.Cut(list, ": ")
		for name := range strings.FieldsSeq(names) {
			in.options[name] = means[kind]
		}
	}
	return in
}

func (in *interpreter) behind(only bool, words ...string) *interpreter {
	in.words, in.only = setOf(words...), only
	return in
}

func (in *interpreter) looking(named bool) *interpreter {
	in.looks, in.named = true, named
	return in
}

func (in *interpreter) running(named bool) *interpreter {
	in.runs, in.named = true, named
	return in
}

func (in *interpreter) withText() *interpreter {
	in.text = true
	return in
}

// interpreters are the programs that run a file which an argument names, by name without a version
// ("python3.12" is "python"), and those that run another command of which that may be so and that
// is not looked for by itself (see wrappers). To add one, read its manual: an option that is not
// here may have the next word as its value, and both are taken for the file then.
var interpreters = func() map[string]*interpreter {
	shell := of("abefhiklmnprtuvxBCDEHPT", "last: -c -s", "value: -o -O", "loads: --rcfile --init-file", "alone: --norc --noprofile --posix --login --restricted --verbose")
	shell.plus = true
	python := of("bBdEhiIOPqRsSuvVx", "value: -W -X --check-hash-based-pycs", "last: -c -m", "alone: --help --version")
	node := of("cihv", "value: -C --conditions --title --disable-warning --diagnostic-dir --dns-result-order --icu-data-dir --inspect-port --max-http-header-size"+
		" --redirect-warnings --secure-heap --stack-trace-limit --test-concurrency --test-name-pattern --test-reporter-destination --test-timeout"+
		" --trace-event-categories --unhandled-rejections --watch-path --input-type",
		"inline: -e -p -pe --eval --print", "last: --run", "loads: --openssl-config --test-reporter --test-global-setup --snapshot-blob --experimental-sea-config --experimental-config-file --experimental-policy --localstorage-file -r --require --import --loader --experimental-loader --env-file --env-file-if-exists -P --project --tsconfig",
		"moves: --cwd", "alone: --check --enable-source-maps --expose-gc --inspect --inspect-brk --interactive --no-deprecation --no-warnings --test --throw-deprecation"+
			" --trace-deprecation --trace-uncaught --trace-warnings --watch --watch-preserve-output --experimental-strip-types --experimental-transform-types").behind(false, "inspect", "debug", "watch")
	perl := of("acfhnpsStTuUvwWX0l", "glued: -C -d -D -F -i -m -M -V -x", "inline: -e -E", "loads: -I")
	ruby := of("aclnpsSvwyhU0", "glued: -F -i -K -T -W -x", "value: -E --encoding --external-encoding --internal-encoding --disable --enable --dump --backtrace-limit", "inline: -e",
		"loads: -I -r", "moves: -C -X", "alone: --copyright --jit --yjit --verbose --version --help")
	php := of("aCeHhilmnqsvw", "value: -S --server", "inline: -r -R -B -E --run --process-code --process-begin --process-end",
		"loads: -d --define -c -f -F -t -z --php-ini --file --process-file --docroot --zend-extension")
	lua := of("EivW", "first: -e", "loads: -l")
	deno := of("AhNqrVRWES", "value: --ext -L --log-level --location --seed", "glued: --v8-flags", "loads: -c --config --import-map --lock --cert --env-file --preload --tsconfig",
		"alone: --allow-all --allow-env --allow-net --allow-read --allow-run --allow-sys --allow-write --allow-ffi --allow-import --cached-only --check --inspect --inspect-brk --no-check"+
			" --no-lock --no-prompt --no-remote --quiet --reload --unstable --watch").behind(false, "run", "serve").looking(false)
	bun := of("bhiv", "value: -d --define --filter --port --target", "inline: -e -p --eval --print", "loads: -r --preload --require --import -c --config --env-file --tsconfig-override",
		"moves: --cwd", "alone: --bun --hot --inspect --inspect-brk --no-install --silent --smol --watch").behind(false, "run").looking(false)
	golang := of("anvx", "value: -asmflags -buildmode -compiler -covermode -coverpkg -gccgoflags -gcflags -installsuffix -ldflags -mod -o -p -pgo -tags",
		"loads: -exec -toolexec -pkgdir -modfile -overlay", "moves: -C", "glued: -buildvcs", "alone: -asan -cover -linkshared -modcacherw -msan -race -trimpath -work").behind(true, "run").looking(true)
	java := of("", "glued: -D -X", "value: --add-modules --add-exports --add-opens --add-reads --source -m --module", "loads: -jar -cp -classpath --class-path -p --module-path --upgrade-module-path",
		"alone: -ea -da -server -client --enable-preview -version --version").looking(false)
	java.lists = true
	awk := of("bcCghIkMnNOPrsStV", "value: -v -F --assign --field-separator", "glued: -o -p -d -D -L --dump-variables --pretty-print --profile --lint --debug", "first: -e --source", "loads: -f -i -l -E --file --include --load --exec").withText()
	sed := of("nrEsuzb", "glued: -i", "value: -l --line-length", "first: -e --expression", "loads: -f --file",
		"alone: --quiet --silent --regexp-extended --in-place --separate --unbuffered --null-data --posix --debug --sandbox --follow-symlinks").withText()

	uv := of("nqv", "value: --with --with-editable --extra --no-extra --group --no-group --only-group --package --index --default-index -i --index-url --extra-index-url -f --find-links"+
		" -p --python --cache-dir --color --refresh-package -P --upgrade-package -w --no-binary-package --no-build-package --index-strategy --keyring-provider --resolution --prerelease --link-mode"+
		"",
		"loads: --with-requirements --env-file --project --config-file",
		"last: -m --module", "moves: --directory", "alone: -s --script --all-extras --no-dev --dev --only-dev --isolated --active --locked --frozen --no-sync --no-project --no-env-file --offline --quiet --verbose --exact"+
			" --no-cache --no-config --no-progress --native-tls --refresh --upgrade --no-editable --no-default-groups --all-groups --all-packages").behind(true, "run").running(false)
	poetry := of("hnqvV", "loads: -P --project", "moves: -C --directory", "alone: --quiet --verbose --no-interaction --no-plugins --no-cache --ansi --no-ansi").behind(true, "run").running(false)
	pdm := of("hqvs", "value: -L --venv", "loads: -p --project -c --config --env-file", "alone: --quiet --verbose --site-packages").behind(true, "run").running(false)
	pipenv := of("hqv", "value: --python --pypi-mirror", "alone: --verbose --quiet --clear").behind(true, "run").running(false)
	npx := of("qyhv", "value: -p --package --cache --registry --loglevel", "last: -c --call", "value: -w --workspace --prefix",
		"alone: --yes --no --no-install --quiet --silent --ignore-existing --prefer-offline --offline").running(true)
	npm := of("qyhs", "value: -p --package --cache --registry --loglevel", "last: -c --call", "value: -w --workspace --prefix -C --userconfig",
		"alone: --yes --no --silent --offline --workspaces").behind(true, "exec", "x").running(true)
	pnpm := of("hrsw", "value: --package -F --filter --reporter --loglevel", "alone: -c --shell-mode", "moves: -C --dir", "alone: --silent --recursive --parallel --workspace-root").behind(false, "exec", "dlx", "run").running(false)
	yarn := of("hqv", "value: -p --package", "moves: --cwd", "alone: --silent --quiet --top-level --verbose").behind(false, "exec", "dlx", "run", "node").running(false)
	runner := func(words ...string) *interpreter {
		return of("hqv", "moves: --cwd").behind(len(words) > 0, words...).running(false)
	}

	all := map[string]*interpreter{
		".": of(""), "source": of(""), "python": python, "pypy": python, "pythonw": python, "node": node, "nodejs": node, "ts-node": node, "ts-node-esm": node, "tsx": node,
		"perl": perl, "ruby": ruby, "jruby": ruby, "php": php, "lua": lua, "luajit": of("Eiv", "first: -e", "loads: -l -b", "value: -j", "glued: -O"), "texlua": lua,
		"tclsh": of("", "value: -encoding"), "wish": of("", "value: -encoding -colormap -display -geometry -name -use -visual"), "expect": of("bdinNv", "first: -c", "value: -D", "loads: -f"),
		"deno": deno, "bun": bun, "go": golang, "java": java, "dotnet": of("", "loads: --additional-deps --additionalprobingpath --depsfile --runtimeconfig", "value: --fx-version --roll-forward").behind(false, "exec").looking(false),
		"awk": awk, "gawk": awk, "mawk": awk, "nawk": awk, "sed": sed, "coverage": of("ahLp", "last: -m --module", "value: --concurrency --context --include --omit --source", "loads: --rcfile --data-file", "alone: --append --branch --parallel-mode --timid").behind(true, "run"),
		"Rscript": of("", "inline: -e", "glued: --default-packages", "alone: --vanilla --no-save --no-restore --verbose --no-environ --no-site-file --no-init-file"),
		"R":       of("q", "inline: -e", "loads: -f --file", "alone: --vanilla --no-save --no-restore --slave --quiet").withText(),
		"julia":   of("iqvh", "inline: -e -E --eval --print", "loads: -L --load -J --sysimage", "value: -t --threads -p --procs -C --cpu-target", "glued: -g -O --optimize --project"),
		"elixir":  of("v", "inline: -e --eval --rpc-eval", "loads: -r -pr -pa -pz", "value: --cookie --name --sname --erl --logger-otp-reports"),
		"guile":   of("qv", "last: -c", "value: -e -x", "loads: -s -l -L -C", "alone: --auto-compile --no-auto-compile --debug --no-debug"),
		"sbcl":    of("", "inline: --eval", "loads: --script --load --core --userinit --sysinit", "value: --dynamic-space-size --control-stack-size", "alone: --noinform --non-interactive --no-userinit --no-sysinit --disable-debugger"),
		"racket":  of("imqnv", "first: -e --eval", "loads: -p -l --lib -I -f -t -r -u --load --require --script -S -R -X -A -G"), "groovy": of("hn", "inline: -e", "loads: -cp -classpath --classpath", "value: -c --encoding"),
		"swift": of("", "loads: -I -F -L").looking(false), "scala": of("", "inline: -e", "loads: -cp -classpath").looking(false), "kotlin": of("", "inline: -e", "loads: -cp -classpath").looking(false),
		"pwsh": of("", "last: -c -Command -EncodedCommand", "loads: -f -File", "value: -ep -ExecutionPolicy", "moves: -WorkingDirectory -wd", "alone: -NoProfile -NonInteractive -NoLogo -nop -NoExit"),
		"fish": of("ilnPNv", "inline: -c --command", "first: -C --init-command", "value: -d -o -f", "alone: --no-config --private --login --interactive"), "csh": of("befilmnqstvVxX", "inline: -c"), "tcsh": of("befilmnqstvVxX", "inline: -c"),
		"nu": of("hilnv", "inline: -c --commands", "loads: --config --env-config -I"), "xonsh": of("ilVh", "inline: -c", "loads: --rc"), "elvish": of("", "inline: -c", "loads: -rc"),

		"uv": uv, "uvx": of("hnqv", "value: --with --with-editable --from -p --python --index --default-index", "value: --with-requirements --env-file", "moves: --directory").running(true),
		"poetry": poetry, "pdm": pdm, "pipenv": pipenv, "rye": runner("run"), "hatch": runner("run"), "pipx": of("hq", "value: --spec --python --index-url --pip-args").behind(true, "run").running(false),
		"npx": npx, "pnpx": npx, "bunx": npx, "npm": npm, "pnpm": pnpm, "yarn": yarn, "cross-env": runner(), "bundle": runner("exec"), "rbenv": runner("exec"), "pyenv": runner("exec"), "asdf": runner("exec"),
		"mise": runner("exec", "x"), "conda": runner("run"), "mamba": runner("run"), "micromamba": runner("run"),
	}
	for name := range shells {
		all[name] = shell
	}
	return all
}()

// interpreterOf is the interpreter that a program of this name or path is, whatever its version; nil for none.
func interpreterOf(name string) *interpreter {
	if strings.IndexByte(name, '/') >= 0 {
		name = path.Base(name)
	}
	if in := interpreters[name]; in != nil {
		return in
	}
	for i := 1; i < len(name); i++ {
		if name[i] >= '0' && name[i] <= '9' || name[i] == '@' {
			return interpreters[strings.TrimRight(name[:i], "-.")]
		}
	}
	return nil
}

// option is what an option means, and the value that stands in the same word from at on; 0 for none.
func (in *interpreter) option(o string) (m meaning, at int) {
	if m := in.options[o]; m != unknown {
		return m, 0
	}
	name, value, joined := strings.Cut(o, "=")
	if o[1] != '-' && (!joined || in.options[name] == unknown) {
		return in.letters(o)
	}
	if joined {
		at = len(name) + 1
	}
	if m = in.options[name]; m == unknown {
		m = in.shortened(name)
	}
	if joined && m == unknown {
		if m = alone; isCode(value) {
			m = loads
		}
	}
	return m, at
}

// letters is option for options of one letter, of which the last may have a value.
func (in *interpreter) letters(o string) (m meaning, at int) {
	for i := 1; i < len(o); i++ {
		if o[i] >= '0' && o[i] <= '9' {
			continue
		}
		letter := [2]byte{'-', o[i]}
		rest := o[i+1:]
		switch m = in.options[string(letter[:])]; {
		case m == unknown && isCode(rest):
			return unclear, 0
		case m == unknown, m == last:
			return m, 0
		case m == glued && isCode(rest):
			return loads, i + 1
		case m == glued:
			return alone, 0
		case m != alone && rest != "":
			return m, i + 1
		case m != alone:
			return m, 0
		}
	}
	return alone, 0
}

// shortened is what a long option means that may be the beginning of others: to load code, or what is not known.
func (in *interpreter) shortened(name string) (m meaning) {
	if len(name) < 4 {
		return unknown
	}
	for o, means := range in.options {
		if strings.HasPrefix(o, name) && means >= loads {
			if m != unknown && m != means || means == leads {
				return unclear
			}
			m = means
		}
	}
	return m
}

// isCode reports whether the value of an option that is not known to be text may be a file that is run.
func isCode(value string) bool {
	return strings.Contains(value, "/") && !isURL(value) || extensions[path.Ext(value)]
}

// namesFile reports whether an operand is taken for a file, where it may also be something else.
func (in *interpreter) namesFile(v string) bool {
	scheme, _, found := strings.Cut(v, ":")
	switch {
	case strings.HasPrefix(v, "@"), found && schemes[scheme]:
		return false
	case strings.HasPrefix(v, "."), strings.HasPrefix(v, "/"), strings.HasPrefix(v, "~"):
		return true
	}
	return strings.Contains(v, "/") && !in.named || extensions[path.Ext(v)]
}

var (
	// schemes begin what is no file of the session.
	schemes = setOf("http", "https", "npm", "jsr", "node", "bun", "data", "git", "git+ssh", "git+https", "github")
	// extensions are those of scripts and of what is run like them.
	extensions = setOf(".py", ".pyw", ".pyz", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".go", ".java", ".jar", ".dll", ".rb", ".pl", ".php", ".sh",
		".bash", ".lua", ".swift", ".scala", ".sc", ".kts", ".wasm")
)
