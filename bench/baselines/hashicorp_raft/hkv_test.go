// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"testing"
)

var pair7 = [16]byte{1, 0, 0, 0, 0, 0, 0, 0, 7}

func datagram(kind byte, client uint64, body ...byte) []byte {
	out := make([]byte, requestBytes)
	out[0], out[1], out[2] = magic, version, kind
	binary.LittleEndian.PutUint64(out[8:], client)
	out[16] = 7
	return append(out, body...)
}

func putBody(pairs ...string) []byte {
	body := []byte{byte(len(pairs) / 2)}
	for i := 0; i < len(pairs); i += 2 {
		body = append(body, operationPut, byte(len(pairs[i])))
		body = append(append(body, pairs[i]...), withLength([]byte(pairs[i+1]))...)
	}
	return body
}

func TestRequestsAreUnderstood(t *testing.T) {
	asked, status, answer := parse(datagram(kindGet, 1, 3, 'k', 'e', 'y'))
	if !answer || status != statusOK || asked.kind != kindGet || string(asked.key) != "key" || asked.pair != pair7 {
		t.Errorf("%+v, status %d, answer %v", asked, status, answer)
	}
	if _, status, _ := parse(datagram(kindOpen, 0)); status != statusOK {
		t.Errorf("OPEN: status %d", status)
	}
	asked, status, _ = parse(datagram(kindWrite, 1, putBody("a", "1", "b", "22")...))
	if status != statusOK {
		t.Fatalf("WRITE: status %d", status)
	}
	found := map[string]string{}
	eachPut(asked.puts, func(key, value []byte) { found[string(key)] = string(value) })
	if len(found) != 2 || found["a"] != "1" || found["b"] != "22" {
		t.Errorf("%v", found)
	}
}

func TestWhatIsNoRequestIsRefused(t *testing.T) {
	flagged, longer := datagram(kindGet, 1, 1, 'k'), datagram(kindWrite, 1, putBody("k", "v")...)
	flagged[3] = 1
	for what, bad := range map[string][]byte{
		"shorter than a header": datagram(kindGet, 1)[:39], "a flag": flagged, "no such kind": datagram(9, 1),
		"OPEN with a session": datagram(kindOpen, 5), "OPEN with a body": datagram(kindOpen, 0, 1),
		"GET without a key": datagram(kindGet, 1), "GET cut off": datagram(kindGet, 1, 3, 'k'),
		"WRITE without a count": datagram(kindWrite, 1), "WRITE cut off": longer[:len(longer)-1],
		"bytes after a WRITE": append(longer, 0), "too many writes": datagram(kindWrite, 1, 65),
		"an increment": datagram(kindWrite, 1, 1, 4, 1, 'k', 1, 0, 0, 0, 0, 0, 0, 0),
		"too long":     datagram(kindWrite, 1, putBody("k", string(make([]byte, 1300)))...),
	} {
		if _, status, answer := parse(bad); !answer || status != statusMalformed {
			t.Errorf("%s: status %d, answer %v", what, status, answer)
		}
	}
	other := datagram(kindGet, 1, 1, 'k')
	other[1] = 1
	if asked, status, answer := parse(other); !answer || status != statusUnknownVersion || asked.pair != pair7 {
		t.Errorf("another version: status %d, answer %v", status, answer)
	}
}

func TestNothingThatCouldBeAnAnswerIsAnswered(t *testing.T) {
	foreign := datagram(kindGet, 1)
	foreign[0] = 0x49
	for _, bad := range [][]byte{nil, {magic}, foreign, datagram(kindGet|answerBit, 1)} {
		if _, _, answer := parse(bad); answer {
			t.Errorf("%v is answered", bad)
		}
	}
}

func TestAnAnswerRepeatsThePairAndSaysWhoLeads(t *testing.T) {
	out := encode(make([]byte, 2048), kindGet, statusNotLeader, 3, pair7, withLength([]byte("v")))
	if out[0] != magic || out[2] != kindGet|answerBit || out[3] != statusNotLeader || out[4] != 3 ||
		!bytes.Equal(out[8:24], pair7[:]) || !bytes.Equal(out[32:], []byte{1, 0, 'v'}) {
		t.Errorf("%v", out)
	}
}
