// SPDX-License-Identifier: Apache-2.0

// The part of our client protocol that this node speaks (docs/WIRE_FORMAT.md, "hkv"): OPEN, GET, and WRITE of puts. So
// the load that measures our own store measures this one too, with the same client code and the same datagrams.

package main

import "encoding/binary"

const (
	requestBytes  = 40 // of the header
	answerBytes   = 32
	datagramBytes = 1232
	magic         = 0x48
	version       = 2
	answerBit     = 0x80

	kindOpen  = 1
	kindWrite = 2
	kindGet   = 3

	statusOK             = 0
	statusNotFound       = 1
	statusOverloaded     = 6
	statusNotLeader      = 7
	statusMalformed      = 8
	statusUnknownVersion = 9

	operationPut  = 1
	operationsMax = 64
	keyBytesMax   = 250
)

// request is what a datagram asks for; key and puts share its bytes.
type request struct {
	kind byte
	pair [16]byte // client_id and seq: an answer repeats them
	key  []byte   // GET
	puts []byte   // WRITE: the body, which is what stands in the log
}

// parse returns the request, or the status with which it is refused; answer is false where nothing may be answered.
func parse(datagram []byte) (asked request, status byte, answer bool) {
	if len(datagram) < 2 || datagram[0] != magic || (len(datagram) > 2 && datagram[2]&answerBit != 0) {
		return asked, 0, false
	}
	if len(datagram) > 2 {
		asked.kind = datagram[2]
	}
	if len(datagram) >= 24 {
		copy(asked.pair[:], datagram[8:24])
	}
	if datagram[1] != version {
		return asked, statusUnknownVersion, true
	}
	if len(datagram) < requestBytes || len(datagram) > datagramBytes || datagram[3] != 0 {
		return asked, statusMalformed, true
	}
	client, lowest := binary.LittleEndian.Uint64(datagram[8:]), binary.LittleEndian.Uint64(datagram[24:])
	token := binary.LittleEndian.Uint64(datagram[32:])
	body, good := datagram[requestBytes:], false
	switch asked.kind {
	case kindOpen:
		good = len(body) == 0 && client == 0 && lowest == 0 && token == 0
	case kindGet:
		good = lowest == 0 && token == 0 && len(body) >= 1 && int(body[0]) <= keyBytesMax && len(body) == 1+int(body[0])
		if good {
			asked.key = body[1:]
		}
	case kindWrite:
		good = eachPut(body, nil)
		asked.puts = body
	}
	if !good {
		return asked, statusMalformed, true
	}
	return asked, statusOK, true
}

// eachPut goes through the body of a WRITE; false if it holds anything but puts.
func eachPut(body []byte, do func(key, value []byte)) bool {
	if len(body) < 1 || body[0] > operationsMax {
		return false
	}
	rest := body[1:]
	for left := body[0]; left > 0; left-- {
		if len(rest) < 2 || rest[0] != operationPut || int(rest[1]) > keyBytesMax {
			return false
		}
		keyEnd := 2 + int(rest[1])
		if len(rest) < keyEnd+2 {
			return false
		}
		valueEnd := keyEnd + 2 + int(binary.LittleEndian.Uint16(rest[keyEnd:]))
		if len(rest) < valueEnd {
			return false
		}
		if do != nil {
			do(rest[2:keyEnd], rest[keyEnd+2:valueEnd])
		}
		rest = rest[valueEnd:]
	}
	return len(rest) == 0
}

// encode writes an answer into room.
func encode(room []byte, kind, status byte, hint uint32, pair [16]byte, body []byte) []byte {
	out := room[:answerBytes]
	out[0], out[1], out[2], out[3] = magic, version, kind|answerBit, status
	binary.LittleEndian.PutUint32(out[4:], hint)
	copy(out[8:24], pair[:])
	binary.LittleEndian.PutUint64(out[24:], 0) // flags and what is reserved
	return append(out, body...)
}

// sessionBody is what the answer to an OPEN has: an id and a token.
func sessionBody(session uint64) []byte {
	out := make([]byte, 16)
	binary.LittleEndian.PutUint64(out, session)
	return out
}

// withLength is a value as an answer carries it.
func withLength(value []byte) []byte {
	out := make([]byte, 2, 2+len(value))
	binary.LittleEndian.PutUint16(out, uint16(len(value)))
	return append(out, value...)
}
