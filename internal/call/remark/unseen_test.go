package remark

import (
	"strings"
	"testing"
)

func TestUnseen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"cat: /data/x: Permission denied":                                         "/data",
		"cat: data/x: Permission denied":                                          "If it leads there: /data and /mnt/models are mounted",
		"grep: /mnt/models: cannot open":                                          "",
		"PermissionError: [Errno 13] Permission denied: '/mnt/models/a b.bin'":    "/mnt/models",
		"PermissionError: [Errno 13] Permission denied: '/mnt'":                   "/mnt/models",
		"ls: cannot open directory '/': Permission denied":                        "/data",
		"Error: EACCES: permission denied, open '/data/x.json'":                   "/data",
		"bash: /data/run: Permission denied":                                      "/data",
		"ls: cannot open directory ‘/data’: Permission denied":                    "/data",
		"cat: /database/x: Permission denied":                                     "",
		"cat: /etc/shadow: Permission denied":                                     "",
		"cat: .: Permission denied":                                               "If it leads there: ",
		"ln: failed to create hard link 'h' => 'd/f': Invalid cross-device link":  "If it leads there: ",
		"/bin/bash: line 1: made: Permission denied":                              "If it leads there: ",
		"Permission denied":                                                       "If it leads there: ",
		"/data/x was read":                                                        "",
		"cat: /etc/shadow: Permission denied\n/data/x was read, and /mnt/models/": "",
	} {
		got := Unseen([]string{"/data", "/mnt/models"}, "", text)
		if named := strings.HasPrefix(got, "("+want); (got != "") != (want != "") || !named && want != "" {
			t.Errorf("%s: %q", text, got)
		}
	}
	if got := Unseen(nil, "cat: /data/x: Permission denied"); got != "" {
		t.Error(got)
	}
	if got := KeptWords([]string{"/data", "/mnt/models"}); !strings.HasPrefix(got, "/data and /mnt/models are mounted too. ") || KeptWords(nil) != "" {
		t.Error(got)
	}
}
