package apply

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
)

// someNotes are notes of paths of any bytes.
func someNotes(r *rand.Rand, n int) map[string]Noted {
	notes, kinds := make(map[string]Noted), []What{Nothing, Gone, Some, Dir, Mode}
	for range n {
		name := make([]byte, 1+r.IntN(20))
		for i := range name {
			name[i] = byte(1 + r.IntN(255))
		}
		notes[string(name)] = Noted{Is: kinds[r.IntN(len(kinds))], Perm: uint32(r.IntN(0o1000))}
	}
	return notes
}

// damage cuts bytes of a file out, or puts others in their place.
func damage(r *rand.Rand, all []byte) []byte {
	from := r.IntN(len(all))
	to := from + r.IntN(min(len(all)-from, 400)+1)
	var with []byte
	switch r.IntN(5) {
	case 0: // cut out
	case 1: // cut off
		to = len(all)
	case 2: // of a block that was never written
		with = make([]byte, to-from+r.IntN(100<<10))
	case 3: // of the file itself, as of a block that is another's
		at := r.IntN(len(all))
		with = all[at:min(at+to-from, len(all))]
	default:
		for range to - from {
			with = append(with, byte(r.IntN(256)))
		}
	}
	return slices.Concat(all[:from], with, all[to:])
}

// TestDamagedNotes: what damage leaves of the notes is true, can be added to, and is an error
// of nobody's.
func TestDamagedNotes(t *testing.T) {
	t.Parallel()
	const since = 7
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := &state{dir: t.TempDir()}
		notes, later := someNotes(r, 30), someNotes(r, 3)
		must(t, errorOf(d.addNotes(since, notes, nil)))
		whole, err := os.ReadFile(d.notes(since))
		must(t, err)
		hurt := damage(r, whole)
		must(t, os.WriteFile(d.notes(since), hurt, 0o600))
		left, damaged, err := d.readNotes(since)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for path, is := range left {
			if notes[path] != is {
				t.Fatalf("seed %d: %q is noted as %+v, and was as %+v", seed, path, is, notes[path])
			}
		}
		if len(left) < len(notes) && damaged == 0 && !cutAtLines(whole, hurt) {
			t.Fatalf("seed %d: %d of %d notes are left, and nothing is damaged", seed, len(left), len(notes))
		}
		maps.DeleteFunc(later, func(path string, _ Noted) bool { _, twice := notes[path]; return twice })
		must(t, errorOf(d.addNotes(since, later, nil)))
		left, _, err = d.readNotes(since)
		must(t, err)
		for path, is := range later {
			if left[path] != is {
				t.Fatalf("seed %d: %q was noted after the damage as %+v, which reads as %+v", seed, path, is, left[path])
			}
		}
	}
}

// cutAtLines reports whether all lines that are left were there: of those that are not nothing
// can be seen.
func cutAtLines(whole, left []byte) bool {
	were := strings.Split(string(whole), "\n")
	for line := range bytes.SplitSeq(left, []byte{'\n'}) {
		if i := bytes.IndexByte(line, '{'); i > 0 && !slices.Contains(were, string(line)) {
			return false
		} else if i < 0 && len(line) > 0 {
			return false
		}
	}
	return true
}

// TestDamagedNotesAreNoHindrance: a session whose notes are damaged is judged and applied.
func TestDamagedNotesAreNoHindrance(t *testing.T) {
	t.Parallel()
	for name, tail := range map[string][]byte{"zeros": make([]byte, 1<<20), "no end": bytes.Repeat([]byte("x"), 1<<20), "torn": []byte(`12345678 {"path":"`)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, tree(t, map[string]string{"a": "1\n"}))
			write(t, r.work, map[string]string{"a": "2\n", "new": "1\n"})
			var told []error
			l := &Look{Dir: r.job.Dir, Source: r.job.Source, Owner: r.job.Owner, Since: r.job.Since, Lost: func(what error) { told = append(told, what) }}
			must(t, l.Note(map[string]Noted{"new": {Is: Nothing}}))
			d := &state{dir: r.job.Dir}
			f, err := os.OpenFile(d.notes(r.job.Since), os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			_, err = f.Write(tail)
			must(t, errors.Join(err, f.Close()))
			notes, err := l.Notes()
			must(t, err)
			if len(told) != 1 || !strings.Contains(told[0].Error(), "damaged: 1") || notes["new"].Is != Nothing {
				t.Errorf("told of: %v; the notes are %v", told, notes)
			}
			_, err = l.Judge(t.Context(), []Place{{"new", client.ChangeAdded, beneath.File}})
			must(t, err)
			r.mustApply(client.ApplyRequest{})
		})
	}
}

// TestNotesOfOlderVersions: they have no sums.
func TestNotesOfOlderVersions(t *testing.T) {
	t.Parallel()
	d := &state{dir: t.TempDir()}
	must(t, os.Mkdir(d.path(baseDir), 0o700))
	must(t, os.WriteFile(d.notes(7), []byte("\n{\"path\":\"YQ==\",\"is\":\"dir\",\"perm\":493}\n\n{\"path\":\"Yg==\",\"is\":\"nothing\"}\n{\"path\":\"Yw==\",\"is\":\"noth\"}"), 0o600))
	got, damaged, err := d.readNotes(7)
	want := map[string]Noted{"a": {Is: Dir, Perm: 0o755}, "b": {Is: Nothing}}
	if err != nil || damaged != 1 || !maps.Equal(got, want) {
		t.Errorf("%v, %d damaged, %v; want %v", got, damaged, err, want)
	}
}

// TestNotesAreBounded: one look with many long paths adds no more than there may be of all, and
// says how many are left out; Room is asked.
func TestNotesAreBounded(t *testing.T) {
	t.Parallel()
	notes := make(map[string]Noted)
	for i := range 5000 {
		notes[fmt.Sprintf("%04d", i)+strings.Repeat("/x", (beneath.MaxPath-4)/2)] = Noted{Is: Gone}
	}
	asked, full := int64(0), errors.New("full")
	l := &Look{Dir: t.TempDir(), Since: 7, Room: func(int64) error { return full }}
	if err := l.Note(notes); !errors.Is(err, full) {
		t.Errorf("no room: %v", err)
	}
	var lost error
	l.Room, l.Lost = func(n int64) error { asked += n; return nil }, func(what error) { lost = what }
	must(t, l.Note(notes))
	fi, err := os.Stat((&state{dir: l.Dir}).notes(7))
	must(t, err)
	if fi.Size() > maxNotes || asked != fi.Size() {
		t.Errorf("%d bytes, %d were asked for, and %d are allowed", fi.Size(), asked, maxNotes)
	}
	noted, err := l.Notes()
	must(t, err)
	if want := fmt.Sprintf("%d of 5000 paths", 5000-len(noted)); len(noted) < 2000 || !strings.Contains(fmt.Sprint(lost), want) {
		t.Errorf("%d are noted, lost are %v; want %q", len(noted), lost, want)
	}
	lost = nil
	must(t, l.Note(map[string]Noted{"a" + strings.Repeat("/y", 2000): {Is: Gone}}))
	if lost == nil {
		t.Error("beyond the bound nothing is said")
	}
}

func errorOf(_ int, err error) error { return err }
