// SPDX-License-Identifier: Apache-2.0

// The front end: one UDP socket, one goroutine that reads it and hands what it reads to raft, and one each that waits for
// the writes and for the reads in the order in which they were handed over. Raft ends them in about that order, so this
// costs less than a goroutine for each request.

package main

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strconv"

	"github.com/hashicorp/raft"
)

// What may wait for raft; a request beyond it is answered with OVERLOADED.
const waitingMax = 4096

type waiting struct {
	future raft.Future
	kind   byte
	pair   [16]byte
	key    []byte // of a GET
	client netip.AddrPort
}

type front struct {
	node          *node
	socket        *net.UDPConn
	writes, reads chan waiting
}

func newFront(n *node, address string) (*front, error) {
	resolved, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	socket, err := net.ListenUDP("udp", resolved)
	if err != nil {
		return nil, err
	}
	// As our own node asks for: a burst of all clients fits many times. The kernel may grant less.
	_ = socket.SetReadBuffer(4 << 20)
	return &front{node: n, socket: socket, writes: make(chan waiting, waitingMax), reads: make(chan waiting, waitingMax)}, nil
}

// serve returns when the socket is closed.
func (f *front) serve() {
	go f.collect(f.writes)
	go f.collect(f.reads)
	defer close(f.writes)
	defer close(f.reads)
	datagram, room := make([]byte, 2048), make([]byte, 2048)
	for {
		length, client, err := f.socket.ReadFromUDPAddrPort(datagram)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			f.take(datagram[:length], client, room)
		}
	}
}

func (f *front) take(datagram []byte, client netip.AddrPort, room []byte) {
	asked, status, answer := parse(datagram)
	if !answer {
		return
	}
	hint, body := uint32(0), []byte(nil)
	switch {
	case status == statusUnknownVersion:
		hint = version
	case status != statusOK:
	case !f.node.leads():
		status, hint = statusNotLeader, f.node.leader()
	case asked.kind == kindOpen:
		// A number that pairs its answers, and nothing else: there are no sessions here.
		body = sessionBody(binary.LittleEndian.Uint64(asked.pair[8:]) | 1)
	case asked.kind == kindGet && !f.node.verifiesReads:
		f.send(room, waiting{kind: kindGet, pair: asked.pair, key: asked.key, client: client})
		return
	default:
		if f.hand(asked, client) {
			return
		}
		status = statusOverloaded
	}
	f.write(encode(room, asked.kind, status, hint, asked.pair, body), client)
}

// hand gives a request to raft; false if too many wait already. Only this goroutine adds, so room that is there stays.
func (f *front) hand(asked request, client netip.AddrPort) bool {
	one := waiting{kind: asked.kind, pair: asked.pair, client: client}
	if asked.kind == kindWrite {
		if len(f.writes) == cap(f.writes) {
			return false
		}
		one.future = f.node.raft.Apply(append([]byte(nil), asked.puts...), 0)
		f.writes <- one
		return true
	}
	if len(f.reads) == cap(f.reads) {
		return false
	}
	one.key = append([]byte(nil), asked.key...)
	one.future = f.node.raft.VerifyLeader()
	f.reads <- one
	return true
}

func (f *front) collect(from <-chan waiting) {
	room := make([]byte, 2048)
	for one := range from {
		switch err := one.future.Error(); {
		case err == nil:
			f.send(room, one)
		case one.kind == kindWrite && !errors.Is(err, raft.ErrNotLeader):
			// It may have been done or not, and the protocol has no word for that: the client hears nothing.
		default:
			f.write(encode(room, one.kind, statusNotLeader, f.node.leader(), one.pair, nil), one.client)
		}
	}
}

// send answers what raft allows to be answered.
func (f *front) send(room []byte, one waiting) {
	if one.kind == kindWrite {
		done := one.future.(raft.ApplyFuture).Response().(int)
		body := make([]byte, 1+2*done) // each put's value is empty
		body[0] = byte(done)
		f.write(encode(room, kindWrite, statusOK, 0, one.pair, body), one.client)
		return
	}
	value, found := f.node.store.get(one.key)
	if !found {
		f.write(encode(room, kindGet, statusNotFound, 0, one.pair, nil), one.client)
		return
	}
	f.write(encode(room, kindGet, statusOK, 0, one.pair, withLength(value)), one.client)
}

// What the kernel does not take is lost, as any datagram may be.
func (f *front) write(answer []byte, client netip.AddrPort) {
	_, _ = f.socket.WriteToUDPAddrPort(answer, client)
}

func numberOf(id raft.ServerID) uint32 {
	number, err := strconv.ParseUint(string(id), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(number)
}
