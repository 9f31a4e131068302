package egress

import (
	"bytes"
	"strings"
	"testing"
	"testing/iotest"
)

// TestKindOf: what a lenient server may read as a request is one, however slowly it comes.
func TestKindOf(t *testing.T) {
	for text, want := range map[string]kind{
		"GET / HTTP/1.1\r\n\r\n": request, "\r\n\n GET": other, "\r\n\nGET / HTTP/1.1\r\n": request, "get /x http/1.1\n": request, "FOO\t/x\n": request,
		"GET http://h.example/ HTTP/1.1\r\n": request, "OPTIONS * HTTP/1.1\r\n": request, "CONNECT h.example:1 HTTP/1.1\r\n": request, "PRI * HTTP/2.0\r\n": request,
		"GET /0.9\n": request, "GET   /x HTTP/1.1\n": request, strings.Repeat("A", maxFirst): request, strings.Repeat("\n", maxFirst): request, "A " + strings.Repeat("a", maxFirst): request,
		"SSH-2.0-OpenSSH_9.2 Debian\r\n": other, "EHLO mail.example\r\n": other, "0033git-upload-pack /p.git\x00host=h.example\x00": other, "0033git-upload-pack /p HTTP/1.1\n\x00": request, "GET /p\x00\r\n": request, "GET http://h.example/p": request,
		"*1\r\n$4\r\nPING\r\n": other, "set key 0 0 1\r\n": other, "PING\r\n": other,
		"OPTIONS rtsp://h.example/ RTSP/1.0\r\n": other, "\x00\x00\x00\x08\x04\xd2\x16\x2f": other, "{\"a\":1}\n": other,
		" GET /x HTTP/1.1\r\n": request, "\x1f\r\n\x0bGET\x0c/x\x0bHTTP/1.1\r\n": request, "POST\xa0/x\r\n": request, "GET\r/x\n": request, "GET secret\n": request, "GET\n": other,
		"GET git-x /p HTTP/1.1\x00\n": request, "GET git-x\x00": request, "get key\r\n": other,
		"0\x20\x02\x01\x01\x60": other, "0\x0c\x02\x01\x01\x60\x07": other, "0\x84\x00\x00\x00\x10\x02": other, "0 /x HTTP/1.1\n": request,
		"\x16\x03\x01\x02": secret, "\x80\x2e\x01\x03": secret, "\x16\x04": other, "\x80\x2e\x01\x00": other,
	} {
		first, got, err := readFirst(iotest.OneByteReader(strings.NewReader(text)), func() {})
		if got != want || err != nil && text != "\r\n\n GET" || !strings.HasPrefix(text, string(first)) {
			t.Errorf("%.40q is %d, want %d (%v)", text, got, want, err)
		}
	}
	if first, k, err := readFirst(bytes.NewReader([]byte("GE")), func() {}); string(first) != "GE" || k != other || err == nil {
		t.Errorf("half a method: %q, %d, %v", first, k, err)
	}
}
