package shipped

import (
	"encoding/json"
	"strings"
	"testing"
)

// What is cut is found, and what is there is counted in all strings of a question.
func TestReceive(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 100) + strings.Repeat("abcdefghij", 100)
	for _, tt := range []struct {
		name, wrote, result string
		want                Received
	}{
		{"whole", "a\t\"b\"\n", "a\t\"b\"\n", Received{Wrote: 6, Arrived: 6, Times: 1, Around: "…"}},
		{"around", "text", "in /h/x: text", Received{Wrote: 4, Arrived: 13, Times: 1, Around: "in {home}/x: …"}},
		{"twice", "text", "text text", Received{Wrote: 4, Arrived: 9, Times: 2, Around: "… text"}},
		{"cut", long, long[:990] + "[…]" + long[1995:], Received{Wrote: 2000, Arrived: 1000, First: 990, Last: 5}},
		{"escaped", "a\t<b>\n", `{"text":"a\t<b>\n"}`, Received{Wrote: 6, Arrived: 19, First: 1, Last: 0, Escaped: true}},
		{"other", "text", "", Received{Wrote: 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body, err := json.Marshal(object{"messages": []any{object{"content": tt.result}}})
			if err != nil {
				t.Fatal(err)
			}
			if got := (&Probe{}).Receive(written{text: tt.wrote}, tt.result, &Question{body: body}, &Question{}, "/h"); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
