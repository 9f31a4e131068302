package textfile

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// CutOff reports whether a picture or document ends before its own structure says that it does.
// Nothing is decoded: what is in it may be damaged all the same, but in a PNG, whose parts have
// check sums.
func CutOff(k Kind, data []byte) bool {
	switch k.MIME {
	case "image/png":
		return !pngWhole(data)
	case "image/jpeg":
		return !jpegWhole(data)
	case "image/gif":
		return !gifWhole(data)
	case "image/webp":
		return len(data) < 12 || int64(binary.LittleEndian.Uint32(data[4:]))+8 > int64(len(data))
	case "image/bmp":
		return !bmpWhole(data)
	case "application/pdf":
		const tail = 4 << 10 // some programs put something behind the end
		data = bytes.TrimRight(data, "\x00")
		return !bytes.Contains(data[max(len(data)-tail, 0):], []byte("%%EOF"))
	}
	return false
}

// pngWhole goes through the chunks to the one that ends the picture.
func pngWhole(data []byte) bool {
	for at := 8; at+12 <= len(data); {
		size := int64(binary.BigEndian.Uint32(data[at:]))
		if size > int64(len(data)-at-12) {
			return false
		}
		end := at + 8 + int(size)
		if crc32.ChecksumIEEE(data[at+4:end]) != binary.BigEndian.Uint32(data[end:]) {
			return false
		}
		if string(data[at+4:at+8]) == "IEND" {
			return true
		}
		at = end + 4
	}
	return false
}

// jpegWhole goes through the segments to the picture's data, behind which an end has to be: a
// segment may have a picture of its own in it.
func jpegWhole(data []byte) bool {
	for i := 2; i+4 <= len(data) && data[i] == 0xff; {
		switch marker := data[i+1]; {
		case marker == 0xff:
			i++
			continue
		case marker == 0x01 || marker >= 0xd0 && marker <= 0xd8:
			i += 2
			continue
		case marker == 0xda:
			return bytes.Contains(data[i+2:], []byte{0xff, 0xd9})
		}
		i += 2 + int(binary.BigEndian.Uint16(data[i+2:]))
	}
	return false
}

// gifWhole goes through all frames to the byte that ends the picture.
func gifWhole(data []byte) bool {
	table := func(at int) int { // the size of the colours that a byte tells of
		if at < len(data) && data[at]&0x80 != 0 {
			return 3 << (data[at]&7 + 1)
		}
		return 0
	}
	for at := 13 + table(10); at < len(data); {
		switch data[at] {
		case 0x3b:
			return true
		case 0x21:
			at += 2
		case 0x2c:
			at += 10 + table(at+9) + 1
		default:
			return false
		}
		for at < len(data) && data[at] != 0 { // blocks
			at += 1 + int(data[at])
		}
		at++
	}
	return false
}

// bmpWhole reports whether the file has the bytes that its header says, or those that its pixels
// take where they are not compressed.
func bmpWhole(data []byte) bool {
	if len(data) < 34 {
		return false
	}
	size, begin := int64(binary.LittleEndian.Uint32(data[2:])), int64(binary.LittleEndian.Uint32(data[10:]))
	if header := binary.LittleEndian.Uint32(data[14:]); header != 12 {
		width, height, _ := bmpSize(data)
		bits := int64(binary.LittleEndian.Uint16(data[28:]))
		if packed := binary.LittleEndian.Uint32(data[30:]); packed == 0 || packed == 3 {
			size = begin + (int64(width)*bits+31)/32*4*int64(height)
		}
	}
	return size <= int64(len(data))
}
