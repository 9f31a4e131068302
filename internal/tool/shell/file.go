package shell

import "strings"

// Options that name files.

// fileTable are the options of a program whose value is a file that is read or written.
type fileTable struct {
	letters string
	names   []string // "-" and more letters than one, or "--" and a name, which may be written shorter
}

// fileOptions are those options, by program, of the programs whose plain words are files (see fileCommands) and of others
// that have many. Some have a text as their value, and a file behind a "@" or a "<" in it: see textOptions. To add some, read the program's manual. An operand needs no
// entry, nor what looks like a path. Of a program without an entry anything that is joined to a letter may be a link's name.
var fileOptions = func() map[string]*fileTable {
	grep, awk := "-f --file --exclude-from", "-f -i -l -E -o -p -d --file --include --load --exec --dump-variables --pretty-print --profile"
	reference, target, vi := "-r --reference", "-t --target-directory", "-S -s -u -U -w -W -i -t"
	all := make(map[string]*fileTable)
	for names, options := range map[string]string{
		"cat tac head tail nl od cut paste join comm uniq fold fmt expand unexpand rev stat ls dir vdir mkdir rm rmdir cd pushd cmp tee test [ readlink unlink timeout nice ionice stdbuf": "",
		"sort": "-o -T --output --temporary-directory --files0-from --random-source --compress-program", "shuf": "-o --output --random-source", "shred": "--random-source",
		"wc": "--files0-from", "du": "-X --exclude-from --files0-from", "grep egrep fgrep zgrep": grep, "rg": "-f --file --ignore-file --pre --hostname-bin", "ag": "-p --path-to-ignore",
		"ack": "--ackrc --files-from --ignore-ack-defaults", "sed": "-f --file", "awk gawk mawk": awk, "jq": "-f -L --from-file --slurpfile --rawfile --argfile --library-path", "yq": "--from-file --split-exp-file",
		"date": "-f -r --file --reference", "touch truncate chmod chown chgrp": reference, "cp mv ln install": target, "diff": "-X -S --exclude-from --starting-file --from-file --to-file",
		"patch": "-i -o -r -d -D --input --output --reject-file --directory", "tree": "-o --gitfile --infofile", "less more": "-o -O -k -T --log-file --LOG-FILE --lesskey-file --lesskey-src --tag-file",
		"bat": "--config-file --config-dir --cache-dir", "vi vim": vi, "nano": "-f -o -C -s --rcfile --operatingdir --backupdir --speller", "scp": "-F -i -S -o",
		"rsync": "-T -e -M --files-from --exclude-from --include-from --password-file --log-file --partial-dir --temp-dir --compare-dest --copy-dest --link-dest --backup-dir --read-batch --write-batch --only-write-batch --early-input --config",
		"file":  "-f -m --files-from --magic-file", "xz": "--files --files0", "hexdump": "-f", "realpath": "--relative-to --relative-base", "split": "--filter",
		"find": "-files0-from -newer -anewer -cnewer -samefile -fls -fprint -fprint0 -fprintf -f",
		"tar": "-f -T -X -C -g -F -I --file --files-from --exclude-from --directory --listed-incremental --info-script --new-volume-script --volno-file --owner-map --group-map --add-file --index-file" +
			" --one-top-level --use-compress-program --to-command",
		"git": "-F -C -f -t -o -O -S -X --file --git-dir --work-tree --exec-path --template --pathspec-from-file --contents --ignore-revs-file --reference --reference-if-able --separate-git-dir --output" +
			" --output-directory --exclude-from --exclude-per-directory --import-marks --export-marks --index-info --super-prefix",
		"xargs": "-a --arg-file", "time": "-o --output", "env": "-C --chdir", "sudo": "-D -R --chdir --chroot",
		"curl": "-K -T -o -D -c -b -E --config --upload-file --output --dump-header --cookie-jar --cookie --cert --key --cacert --capath --crlfile --netrc-file --trace --trace-ascii --stderr --output-dir" +
			" --unix-socket --abstract-unix-socket --alt-svc --hsts --libcurl --etag-save --etag-compare --egd-file --random-file --proxy-cert --proxy-key --proxy-cacert --proxy-capath --proxy-crlfile" +
			" --pubkey --pinnedpubkey --proxy-pinnedpubkey --knownhosts --ssl-sessions -d -F -H -w --data --data-ascii --data-binary --data-urlencode --json --form --header --proxy-header" +
			" --write-out --url-query --variable --url",
		"wget": "-i -o -a -O -P -e --input-file --output-file --append-output --output-document --directory-prefix --execute --config --rejected-log --load-cookies --save-cookies --post-file --body-file" +
			" --certificate --private-key --ca-certificate --ca-directory --crl-file --pinnedpubkey --warc-file --warc-dedup --warc-tempdir --use-askpass --hsts-file --random-file --egd-file",
	} {
		table := &fileTable{}
		for name := range strings.FieldsSeq(options) {
			if len(name) == 2 {
				table.letters += name[1:]
			} else {
				table.names = append(table.names, name)
			}
		}
		for program := range strings.FieldsSeq(names) {
			all[program] = table
		}
	}
	return all
}()

// textOptions are those of curl that have a text; inside: a "@" may stand anywhere in it.
var textOptions = map[string]struct{ inside bool }{
	"-d": {}, "--data": {}, "--data-ascii": {}, "--data-binary": {}, "--json": {}, "-H": {}, "--header": {}, "--proxy-header": {}, "-w": {}, "--write-out": {}, "--url": {},
	"-F": {true}, "--form": {true}, "--data-urlencode": {true}, "--url-query": {true}, "--variable": {true},
}

// optionFile lists the files that argument i of k, an option, names by t: joined to it, or as the next argument.
func optionFile(c *scanner, k *call, i int, t *fileTable) {
	w := k.args[i]
	value := func(option string, from int, joined bool) {
		switch {
		case joined || !w.fixed:
			optionValue(c, k, option, w, min(from, len(w.value)))
		case i+1 < len(k.args):
			optionValue(c, k, option, k.args[i+1], 0)
		}
	}
	name, _, joined := strings.Cut(w.value, "=")
	if long := strings.HasPrefix(name, "--"); len(name) > 2 {
		for _, o := range t.names {
			if o == name || long && strings.HasPrefix(o, name) {
				value(o, len(name)+1, joined)
			}
		}
		if long {
			return
		}
	}
	// Among other letters each may have the rest as its value.
	for j := 1; j < len(w.value) && isAlphanumeric(w.value[j]); j++ {
		if strings.IndexByte(t.letters, w.value[j]) >= 0 {
			value("-"+w.value[j:j+1], j+1, j+1 < len(w.value))
		}
	}
}

func isAlphanumeric(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9'
}

// optionValue lists the file that the value of an option names, which is w from a byte of it on.
func optionValue(c *scanner, k *call, option string, w word, from int) {
	rest := w
	if rest.value = w.value[from:]; from > 0 {
		rest.tilde = false
	}
	named := word{text: w.text, fixed: true}
	within(c, k, w, from, true)
	text, is := textOptions[option]
	if !is || k.name != "curl" {
		if !isURL(rest.value) {
			// git's commands that show something may be allowed whatever they are given, as echo may.
			c.resolve(k.dirs, w.text, rest, option == "--output" && k.name == "git")
		}
		if _, value, is := strings.Cut(rest.value, "="); is && w.fixed {
			named.value = strings.TrimSpace(value)
			c.resolve(k.dirs, w.text, named, false)
		}
		return
	}
	at := strings.IndexAny(rest.value, "@<")
	switch {
	case !w.fixed && (text.inside || rest.value == "" || at == 0):
		c.resolve(k.dirs, w.text, word{text: w.text}, false)
	case at >= 0:
		named.value = rest.value[at+1:]
		c.resolve(k.dirs, w.text, named, false)
		for file := range strings.FieldsFuncSeq(named.value, func(r rune) bool { return r == ',' || r == ';' }) {
			named.value = strings.Trim(file, `"`)
			c.resolve(k.dirs, w.text, named, false)
		}
	}
}
