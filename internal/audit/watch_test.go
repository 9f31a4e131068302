package audit

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
)

// TestChangedWhileOpen: a file that is taken away, cut or written to under the
// daemon is noticed at the next record. A strict log refuses calls until a restart,
// a lenient one counts it, and both say so in the log, which does not check as whole.
func TestChangedWhileOpen(t *testing.T) {
	cut := func(path string, keep func(int64) int64) error {
		fi, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, keep(fi.Size()))
	}
	for name, c := range map[string]struct {
		change func(path string) error
		says   string
	}{
		"removed":          {os.Remove, "it was removed"},
		"moved":            {func(p string) error { return os.Rename(p, p+".old") }, "it was removed"},
		"replaced":         {func(p string) error { return errors.Join(os.Rename(p, p+".old"), os.WriteFile(p, nil, 0o600)) }, "another one has its place"},
		"emptied":          {func(p string) error { return cut(p, func(int64) int64 { return 0 }) }, "it has 0 of"},
		"cut in a record":  {func(p string) error { return cut(p, func(n int64) int64 { return n / 2 }) }, "it has 78"},
		"cut by one byte":  {func(p string) error { return cut(p, func(n int64) int64 { return n - 1 }) }, "it has 157"},
		"another's record": {func(p string) error { return appendTo(p, "{\"seq\":4}\n") }, "toold has not written"},
	} {
		for _, strict := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s strict=%t", name, strict), func(t *testing.T) {
				l := open(t, Config{Strict: strict})
				for i := range 3 {
					if err := l.Decided(decision(i)); err != nil {
						t.Fatal(err)
					}
				}
				if err := l.Ready(); err != nil {
					t.Errorf("before: %v", err)
				}
				if err := c.change(l.cfg.Path); err != nil {
					t.Fatal(err)
				}
				for i := range 2 {
					err := l.Decided(decision(3 + i))
					var fe *fault.Error
					if refused := errors.As(err, &fe); refused != strict || refused && (fe.Kind != fault.Overloaded ||
						!strings.Contains(fe.Err.Error(), c.says) || !strings.Contains(fe.Hint, "restart")) {
						t.Errorf("decision %d: %v", i, err)
					}
				}
				if err := l.Ready(); (err != nil) != strict {
					t.Errorf("ready: %v", err)
				}
				if err := l.Finished(auth.Principal{}, finished(1), [32]byte{}); err != nil {
					t.Errorf("the end of a call that ran: %v", err)
				}
				if l.Errors() == 0 {
					t.Error("nothing is counted")
				}
				files, err := record.Files(l.cfg.Path)
				if err != nil {
					t.Fatal(err)
				}
				sum, err := record.Verify(files, record.Options{Whole: true})
				if err != nil || sum.Break == nil {
					t.Errorf("it checks as whole: %+v, %v", sum, err)
				}
				if name == "removed" {
					sum, err := record.Verify(files, record.Options{})
					if err != nil || sum.Break != nil || sum.Tampered != 1 || sum.First != 4 {
						t.Errorf("the rest: %+v, %v", sum, err)
					}
				}
				// A restart goes on with the numbers.
				last := l.head.seq
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				next := open(t, Config{Strict: strict, Path: l.cfg.Path})
				if next.checking.Wait(); next.head.seq > last { // what is broken may have got a record
					last++
				}
				if err := next.Decided(decision(9)); err != nil || next.head.seq != last+1 {
					t.Errorf("after a restart: record %d follows %d, %v", next.head.seq, last, err)
				}
			})
		}
	}
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// TestLinkInThePlaceOfTheLog: toold does not write where a link leads, and goes on
// when it is gone.
func TestLinkInThePlaceOfTheLog(t *testing.T) {
	l := open(t, Config{})
	if err := l.Decided(decision(1)); err != nil {
		t.Fatal(err)
	}
	other := l.cfg.Path + ".other"
	if err := errors.Join(os.WriteFile(other, nil, 0o600), os.Remove(l.cfg.Path), os.Symlink(other, l.cfg.Path)); err != nil {
		t.Fatal(err)
	}
	if err := l.Decided(decision(2)); err != nil || l.Errors() == 0 {
		t.Errorf("%v, %d errors", err, l.Errors())
	}
	if b, err := os.ReadFile(other); err != nil || len(b) > 0 {
		t.Errorf("behind the link stands %q, %v", b, err)
	}
	if err := os.Remove(l.cfg.Path); err != nil {
		t.Fatal(err)
	}
	if err := l.Decided(decision(3)); err != nil {
		t.Fatal(err)
	}
	sum, err := record.Verify([]string{l.cfg.Path}, record.Options{})
	if err != nil || sum.Break != nil || sum.Records != 4 || sum.Tampered != 1 || sum.Gaps != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
	if b, err := os.ReadFile(l.cfg.Path); err != nil || !strings.Contains(string(b), "another one has its place") {
		t.Errorf("%s, %v", b, err)
	}
}
