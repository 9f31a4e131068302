package hook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestProgramsAtOnce: no more programs than the bound run at a time.
func TestProgramsAtOnce(t *testing.T) {
	p := NewPrograms(nil, slog.New(slog.DiscardHandler), func(string, string, time.Duration) {})
	p.slots = make(chan struct{}, 2)
	dir := t.TempDir()
	hk := scripted(t, fmt.Sprintf(`touch %[1]s/$$; ls %[1]s | wc -l >> %[1]s.n; sleep 0.05; rm %[1]s/$$`, dir))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := p.Run(t.Context(), &hk, &Event{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	text, err := os.ReadFile(dir + ".n")
	if err != nil || len(strings.Fields(string(text))) != 8 {
		t.Fatalf("%q, %v", text, err)
	}
	for n := range strings.FieldsSeq(string(text)) {
		if n > "2" {
			t.Errorf("%s at once", n)
		}
	}
	errOver := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errOver)
	p.slots <- struct{}{}
	p.slots <- struct{}{}
	if _, err := p.Run(ctx, &hk, &Event{}); !errors.Is(err, errOver) {
		t.Errorf("got %v", err)
	}
}

func scripted(t *testing.T, script string) Hook {
	return Hook{On: CallAfter, Command: []string{program(t, script)}, Timeout: time.Minute}
}
