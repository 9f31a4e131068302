package apply

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/toold/toold/internal/plain"
)

// Files of a private directory about a job whose end somebody waits for: see Job.Ask.
const (
	askedFile = "asked" // nothing of it is written yet, unless its plan is committed
	doneFile  = "done"  // the same file where its plan was carried out
	cutFile   = "cut"   // words about one whose end nobody was told
)

// thisRun tells jobs of this process from those of one that has died.
var thisRun = rand.Text()

// asked is what the first two have.
type asked struct {
	Run string    `json:"run"`
	At  time.Time `json:"at"`
}

// ask notes that a job begins. Where that fails, nobody is told of its end if this process dies.
func (d *state) ask() {
	_ = d.write(askedFile, func(w io.Writer) error { return json.NewEncoder(w).Encode(asked{thisRun, time.Now()}) })
}

// waits is the job whose end nobody has been told yet; nil for none.
func waits(dir string) (a *asked, done bool) {
	for _, name := range []string{doneFile, askedFile} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if a = new(asked); err == nil && json.Unmarshal(text, a) == nil {
			return a, name == doneFile
		}
	}
	return nil, false
}

// jobCutOff is that of a process that has died; nil for none.
func jobCutOff(dir string) (a *asked, done bool) {
	if a, done = waits(dir); a == nil || a.Run == thisRun {
		return nil, false
	}
	return a, done
}

// tell keeps words about such a job, when all is done that is to be done about it.
func (d *state) tell(r *Recovered) {
	a, done := waits(d.dir)
	switch {
	case a == nil && r.Applied != nil:
		a = new(asked) // of an older toold, or one that could not be finished when that was told
	case a == nil || a.Run == thisRun:
		return
	}
	err := d.write(cutFile, func(w io.Writer) error {
		_, err := io.WriteString(w, a.words(r, done))
		return err
	})
	if err == nil { // else the next one does it
		forget(d.dir, askedFile, doneFile)
	}
}

func (a *asked) begin() string {
	return "the daemon ended in the middle of an apply, on " + a.At.UTC().Format(time.DateTime) + " UTC"
}

// words are ASCII, as a header has them.
func (a *asked) words(r *Recovered, done bool) string {
	at := a.begin()
	switch {
	case r.Applied != nil:
		finished := ". The next one finished it"
		if a.At.IsZero() {
			at, finished = "an apply was cut off in the middle", ". It is finished now"
		}
		at += finished + fmt.Sprintf(": %s written to the source, %d removed there", plain.Count(r.Applied.WrittenCount, "path", "paths"), r.Applied.RemovedCount)
		if n := len(r.Left); n > 0 {
			at += fmt.Sprintf("; left alone, since somebody had changed them meanwhile: %d. See what is left with toolctl diff, then apply again", n)
		}
		return at
	case done:
		return at + ", when all of it was written to the source"
	}
	return at + ", before anything was written to the source: apply again"
}

// CutOff gives words about the last job of a private directory if the program died before anybody was
// told how it ended; "" where all have been told. They stay until the next one that succeeds.
func CutOff(dir string) string {
	a, done := jobCutOff(dir)
	if a == nil {
		text, _ := os.ReadFile(filepath.Join(dir, cutFile)) // about one before
		return string(text)
	}
	if _, err := os.Lstat(filepath.Join(dir, committedFile)); err == nil && !done {
		return a.begin() + ", which is written in part: the rest follows at the next apply, or when the daemon starts"
	}
	return a.words(&Recovered{}, done)
}

// Told forgets the last job of this process, whose end somebody has been told, and, if it succeeded, what
// CutOff says of earlier ones.
func Told(dir string, succeeded bool) {
	if a, _ := waits(dir); a != nil && a.Run == thisRun {
		forget(dir, askedFile, doneFile)
	}
	if succeeded {
		forget(dir, cutFile)
	}
}

// forget removes files. What stays is told once more.
func forget(dir string, names ...string) {
	for _, name := range names {
		_ = os.Remove(filepath.Join(dir, name))
	}
}
