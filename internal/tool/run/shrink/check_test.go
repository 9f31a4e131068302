package shrink

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestCheck: a picture is broken where it is cut off or damaged, in each format; one that is whole, of
// another format, or no picture is not.
func TestCheck(t *testing.T) {
	t.Parallel()
	check := func(src []byte) (string, error) {
		path := filepath.Join(t.TempDir(), "picture")
		if err := os.WriteFile(path, src, 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = Check(path, fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino), &out)
		return strings.TrimSpace(out.String()), err
	}
	for _, format := range []string{"png", "jpeg", "gif"} {
		whole := encoded(t, format, noise(64, 64))
		for name, tt := range map[string]struct {
			src  []byte
			want string
		}{
			"whole":   {whole, `{"broken":false}`},
			"cut off": {whole[:len(whole)/2], `{"broken":true}`},
		} {
			if got, err := check(tt.src); err != nil || got != tt.want {
				t.Errorf("%s, %s: %s, %v", format, name, got, err)
			}
		}
	}
	damaged := encoded(t, "png", noise(64, 64))
	damaged[len(damaged)/2] ^= 0xff
	for name, tt := range map[string]struct {
		src  []byte
		want string
	}{
		"damaged":    {damaged, `{"broken":true}`},
		"no picture": {[]byte("text"), `{"broken":false}`},
		"nothing":    {nil, `{"broken":false}`},
	} {
		if got, err := check(tt.src); err != nil || got != tt.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if err := Check(t.TempDir()+"/none", "1", &bytes.Buffer{}); err == nil {
		t.Error("a file that is not there is checked")
	}
}
