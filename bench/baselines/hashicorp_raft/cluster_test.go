// SPDX-License-Identifier: Apache-2.0

// Three nodes in one process on the loopback: what is put is there, followers name the leader, and the others go on
// without it.

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

type member struct {
	node  *node
	front *front
	ended sync.Once
}

func (m *member) stop() {
	m.ended.Do(func() {
		m.front.socket.Close()
		m.node.stop()
	})
}

// freeAddresses are of ports that were free a moment ago: every member must know all of them before the first starts.
func freeAddresses(t *testing.T, count int) []string {
	t.Helper()
	var found []string
	for i := 0; i < count; i++ {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		found = append(found, listener.Addr().String())
	}
	return found
}

func startCluster(t *testing.T, verifies bool) []*member {
	t.Helper()
	addresses := freeAddresses(t, 3)
	var members []*member
	for i := range addresses {
		n, err := startNode(settings{number: uint32(i) + 1, members: addresses, heartbeat: 300 * time.Millisecond,
			election: 300 * time.Millisecond, verifiesReads: verifies, logTo: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		f, err := newFront(n, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		one := &member{node: n, front: f}
		go f.serve()
		t.Cleanup(one.stop)
		members = append(members, one)
	}
	return members
}

func waitForLeader(t *testing.T, members []*member) *member {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		for _, one := range members {
			if one.node.leads() {
				return one
			}
		}
	}
	t.Fatal("no leader within 30 s")
	return nil
}

// ask sends a request until it is answered: a leader that has just changed may say nothing.
func ask(t *testing.T, m *member, request []byte) []byte {
	t.Helper()
	socket, err := net.Dial("udp", m.front.socket.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	answer := make([]byte, 2048)
	for i := 0; i < 20; i++ {
		if _, err := socket.Write(request); err != nil {
			continue
		}
		_ = socket.SetReadDeadline(time.Now().Add(time.Second))
		if length, err := socket.Read(answer); err == nil {
			return answer[:length]
		}
	}
	t.Fatal("no answer")
	return nil
}

func expectStatus(t *testing.T, answer []byte, status byte) {
	t.Helper()
	if answer[3] != status {
		t.Fatalf("status %d, wanted %d", answer[3], status)
	}
}

func getRequest(key string) []byte {
	return datagram(kindGet, 1, append([]byte{byte(len(key))}, key...)...)
}

func putAndGet(t *testing.T, m *member, key, value string) {
	t.Helper()
	written := ask(t, m, datagram(kindWrite, 1, putBody(key, value)...))
	expectStatus(t, written, statusOK)
	if !bytes.Equal(written[32:], []byte{1, 0, 0}) {
		t.Errorf("a put was answered with %v", written[32:])
	}
	expectValue(t, m, key, value)
}

func expectValue(t *testing.T, m *member, key, value string) {
	t.Helper()
	read := ask(t, m, getRequest(key))
	expectStatus(t, read, statusOK)
	if string(read[34:]) != value {
		t.Errorf("%s is '%s', wanted '%s'", key, read[34:], value)
	}
}

func TestAClusterKeepsWhatIsPutAndGoesOnWithoutItsLeader(t *testing.T) {
	members := startCluster(t, true)
	leader := waitForLeader(t, members)
	opened := ask(t, leader, datagram(kindOpen, 0))
	expectStatus(t, opened, statusOK)
	if binary.LittleEndian.Uint64(opened[32:]) == 0 {
		t.Error("a session must have a number")
	}
	expectStatus(t, ask(t, leader, getRequest("k")), statusNotFound)
	putAndGet(t, leader, "k", "v1")

	var others []*member
	for _, one := range members {
		if one != leader {
			others = append(others, one)
			for _, request := range [][]byte{datagram(kindOpen, 0), getRequest("k"), datagram(kindWrite, 1, putBody("k", "x")...)} {
				refused := ask(t, one, request)
				expectStatus(t, refused, statusNotLeader)
				if hint := binary.LittleEndian.Uint32(refused[4:]); hint != leader.node.number {
					t.Errorf("node %d names %d, and %d leads", one.node.number, hint, leader.node.number)
				}
			}
		}
	}
	leader.stop()
	next := waitForLeader(t, others)
	expectValue(t, next, "k", "v1")
	putAndGet(t, next, "k", "v2")
}

// raft takes any answer of a follower for a verification, one to a question of before it too (replication.go, notifyAll, of
// 1.7.3): right after the others' end a read may be answered for each answer that was on its way, and not for longer.
const answersOnTheirWay = 4 // a heartbeat's and an entry's, of two followers

func TestALeaderAloneAnswersNoReadAndNoWrite(t *testing.T) {
	members := startCluster(t, true)
	leader := waitForLeader(t, members)
	putAndGet(t, leader, "k", "v")
	for _, one := range members {
		if one != leader {
			one.stop()
		}
	}
	socket, err := net.Dial("udp", leader.front.socket.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	// It may still believe that it leads; both need a quorum, which is not there.
	_, _ = socket.Write(datagram(kindWrite, 1, putBody("k", "x")...))
	_, _ = socket.Write(getRequest("k"))
	answer := make([]byte, 2048)
	_ = socket.SetReadDeadline(time.Now().Add(2 * time.Second))
	for reads := 0; ; {
		if _, err := socket.Read(answer); err != nil {
			return
		}
		if answer[3] != statusOK {
			continue
		}
		reads++
		if answer[2] != kindGet|answerBit || reads > answersOnTheirWay {
			t.Fatalf("kind %d was answered with OK", answer[2])
		}
		_, _ = socket.Write(getRequest("k"))
	}
}

func TestALeaseAnswersReadsWithoutAsking(t *testing.T) {
	leader := waitForLeader(t, startCluster(t, false))
	putAndGet(t, leader, "k", "v")
}

func TestStatusIsOneLineOfJSON(t *testing.T) {
	members := startCluster(t, true)
	leader := waitForLeader(t, members)
	var said struct {
		Leads, Ready bool
		Leader, Term int
	}
	if err := json.Unmarshal([]byte(leader.node.status()), &said); err != nil {
		t.Fatal(err)
	}
	if !said.Leads || !said.Ready || said.Leader != int(leader.node.number) || said.Term < 1 {
		t.Errorf("%+v", said)
	}
}

func TestASnapshotHoldsEverythingAndDoesNotChange(t *testing.T) {
	from, to := newStore(), newStore()
	from.Apply(&raft.Log{Data: putBody("a", "1", "b", "22")})
	taken, err := from.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	from.Apply(&raft.Log{Data: putBody("a", "later")})
	snapshots := raft.NewInmemSnapshotStore()
	sink, err := snapshots.Create(raft.SnapshotVersionMax, 1, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := taken.Persist(sink); err != nil {
		t.Fatal(err)
	}
	_, kept, err := snapshots.Open(sink.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Restore(kept); err != nil {
		t.Fatal(err)
	}
	for key, wanted := range map[string]string{"a": "1", "b": "22"} {
		if value, found := to.get([]byte(key)); !found || string(value) != wanted {
			t.Errorf("%s is '%s', wanted '%s'", key, value, wanted)
		}
	}
}

func TestANodeThatIsNoMemberDoesNotStart(t *testing.T) {
	if n, err := startNode(settings{number: 4, members: []string{"a", "b", "c"}, logTo: io.Discard}); err == nil {
		n.stop()
		t.Error("it started")
	}
}
