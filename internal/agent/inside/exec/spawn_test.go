package exec

import (
	"errors"
	"io/fs"
	"reflect"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/wire"
)

func TestMergeEnv(t *testing.T) {
	got := mergeEnv([]string{"A=1", "B=2", "A=3"}, []string{"B=4", "C=5", "C=6"})
	if want := []string{"A=3", "B=4", "C=6"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := pathOf([]string{"PATH=/a", "X=1", "PATH=/b::/c:rel:"}); !reflect.DeepEqual(got, []string{"/b", "/c"}) {
		t.Errorf("path %v", got)
	}
}

func TestStartErrors(t *testing.T) {
	for want, e := range map[string]*startError{
		"start x: no such file or directory":              {step: stepExec, errno: syscall.ENOENT, argv0: "x"},
		"working directory /d: not a directory":           {step: stepDir, errno: syscall.ENOTDIR, argv0: "x", dir: "/d"},
		"start x: landlock: operation not permitted":      {step: stepLandlock, errno: syscall.EPERM, argv0: "x"},
		"start x: fork: resource temporarily unavailable": {step: stepFork, errno: syscall.EAGAIN, argv0: "x"},
	} {
		if e.Error() != want {
			t.Errorf("%q, want %q", e, want)
		}
	}
	if !errors.Is(&startError{errno: syscall.ENOENT}, fs.ErrNotExist) {
		t.Error("ENOENT is not fs.ErrNotExist")
	}
	for s := stepNone; s <= stepExec; s++ {
		if s.String() == "" {
			t.Errorf("step %d has no name", s)
		}
	}
}

func TestLimitsOf(t *testing.T) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	var notes []string
	l, err := limitsOf(&wire.Hello{OpenFiles: 64, FileSize: 1 << 20}, &notes)
	want := []limit{
		{resource: unix.RLIMIT_NOFILE, value: unix.Rlimit{Cur: 64, Max: 64}},
		{resource: unix.RLIMIT_FSIZE, value: unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}},
	}
	if err != nil || !reflect.DeepEqual(l, want) || len(notes) != 0 {
		t.Errorf("%v %v %v", l, notes, err)
	}
	if own.Max < 1<<62 {
		l, err = limitsOf(&wire.Hello{OpenFiles: 1 << 62}, &notes)
		if err != nil || l[0].value.Max != own.Max || len(notes) != 1 {
			t.Errorf("%v %v %v", l, notes, err)
		}
	}
}
