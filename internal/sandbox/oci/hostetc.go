package oci

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// etcTree is a part of the host's /etc that Rootfs "host" shows: of what is below
// dirs, the files with one of names. Both are patterns of filepath.Match.
type etcTree struct{ dirs, names []string }

// etcTrees are the files of /etc that programs below /usr link to or open by name.
//
// It is a list of what may be shown and not of what may not: /etc also has
// passwords (those of Maven's servers, npm's tokens, proxies in /etc/environment),
// keys and the machine's id, and most of that can be read by every user of the
// host. So a directory is never shown with all that an administrator may put into
// it, only with the names that its packages give to files without secrets.
//
// To add one, ask first what else could stand in a file of that name.
var etcTrees = []etcTree{
	{[]string{"/etc"}, []string{
		"os-release", "lsb-release", "debian_version", "system-release", "redhat-release", "fedora-release",
		"centos-release", "rocky-release", "almalinux-release", "oracle-release", "alpine-release", "arch-release", "SuSE-release",
		"locale.alias", "timezone", "magic", "magic.mime", "rpc", "manpath.config", "man_db.conf",
	}},
	{[]string{"/etc/ssl", "/etc/ssl1.1", "/etc/pki/tls"}, []string{"openssl.cnf", "cert.pem", "ct_log_list.cnf"}},
	{[]string{"/etc/pki/java"}, []string{"cacerts"}},
	{[]string{"/etc/crypto-policies", "/etc/crypto-policies/back-ends", "/etc/crypto-policies/state"}, []string{"config", "current", "*.config"}},
	{below("/etc/java-*-openjdk", "/etc/java*-openjdk", "/etc/java"), []string{
		"*.properties", "*.properties.*", "*.cfg", "*.jfc", "*.security", "*.policy", "*.certs", "*.dat", "jmxremote.access", "README.txt",
	}},
	{below("/etc/maven"), []string{"m2.conf", "toolchains.xml", "simplelogger.properties"}},
	{below("/etc/python3*"), []string{"sitecustomize.py", "debian_config"}},
	{below("/etc/perl"), []string{"libnet.cfg", "ParserDetails.ini"}},
	{below("/etc/fonts"), []string{"*.conf", "*.dtd", "README"}},
	{below("/etc/terminfo"), []string{"*"}},
	{below("/etc/groff"), []string{"*.local", "*.tmac"}},
	{[]string{"/etc/vim"}, []string{"vimrc", "vimrc.tiny", "gvimrc"}},
	{[]string{"/etc/dictionaries-common"}, []string{"words"}},
	{[]string{"/etc/xml", "/etc/sgml"}, []string{"catalog", "*.xml", "*.cat"}},
	{[]string{"/etc/X11"}, []string{"rgb.txt"}},
	{[]string{"/etc/X11/app-defaults"}, []string{"*"}},
}

// etcBlank are what programs below /usr link to, and what may hold secrets: where the
// host has them they are there, and empty.
var etcBlank = []string{"/etc/environment", "/etc/ssl/private", "/etc/pki/tls/private"}

// etcDepth is how far below a directory of etcTrees files may be.
const etcDepth = 6

// below are directories and all those in them.
func below(dirs ...string) []string {
	var list []string
	for _, d := range dirs {
		for range etcDepth {
			list = append(list, d)
			d += "/*"
		}
	}
	return list
}

// maxEtc bounds what is taken of one directory.
const maxEtc = 500

// addEtc adds what etcTrees says of the /etc of root, the host's root directory but
// in tests. What it takes it copies: of a file that is put there later, nothing is
// shown. A place that is already shown stays as it is.
func (r *rootfs) addEtc(root string) error {
	for _, tree := range etcTrees {
		for _, pattern := range tree.dirs {
			dirs, err := filepath.Glob(filepath.Join(root, pattern))
			if err != nil {
				return err
			}
			for _, dir := range dirs {
				if err := r.addNames(root, dir, tree.names); err != nil {
					return err
				}
			}
		}
	}
	for _, p := range etcBlank {
		if fi, err := os.Stat(filepath.Join(root, p)); err == nil && !r.shown(p) {
			r.entries = append(r.entries, entry{path: p, dir: fi.IsDir()})
		}
	}
	return nil
}

// addNames adds the files of one directory, none of whose parents is closed to
// other users or a link.
func (r *rootfs) addNames(root, dir string, names []string) error {
	if open, err := isOpen(root, dir); !open || err != nil {
		return err
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	taken := 0
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		inside := strings.TrimPrefix(path, strings.TrimSuffix(root, "/"))
		match := func(pattern string) bool {
			ok, err := filepath.Match(pattern, e.Name())
			return ok && err == nil
		}
		if e.IsDir() || taken == maxEtc || !slices.ContainsFunc(names, match) || r.shown(inside) {
			continue
		}
		if err := r.add(inside, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		taken++
	}
	return nil
}

// isOpen says whether everybody may list and enter a directory and those above it.
func isOpen(root, dir string) (bool, error) {
	for d := dir; len(d) > len(root); d = filepath.Dir(d) {
		fi, err := os.Lstat(d)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil || !fi.IsDir() || fi.Mode()&0o005 != 0o005 {
			return false, err
		}
	}
	return true, nil
}

// shown says whether a path is an entry, or in a directory that is one.
func (r *rootfs) shown(path string) bool {
	if _, own := r.etc[path]; own {
		return true
	}
	return slices.ContainsFunc(r.entries, func(e entry) bool {
		return e.path == path || e.dir && strings.HasPrefix(path, e.path+"/")
	})
}
