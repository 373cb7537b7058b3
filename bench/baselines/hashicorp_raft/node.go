// SPDX-License-Identifier: Apache-2.0

// One member of the cluster, with hashicorp/raft as its users run it in memory: raft's own in-memory stores, its TCP
// transport with the pipelining that it has by default, its default times, and BatchApplyCh, with which Vault lets writes
// that come together share an entry of the replication.

package main

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

type settings struct {
	number        uint32
	members       []string // addresses of the peers, by number from 1
	heartbeat     time.Duration
	election      time.Duration
	verifiesReads bool
	logTo         io.Writer
}

type node struct {
	number        uint32
	raft          *raft.Raft
	store         *store
	transport     *raft.NetworkTransport
	verifiesReads bool
	changes       chan bool     // raft says here whether it leads
	serving       atomic.Uint64 // the term in which it leads and has applied all that its predecessors committed
}

func startNode(s settings) (*node, error) {
	if s.number < 1 || int(s.number) > len(s.members) {
		return nil, fmt.Errorf("node %d is none of %d members", s.number, len(s.members))
	}
	own := s.members[s.number-1]
	advertise, err := net.ResolveTCPAddr("tcp", own)
	if err != nil {
		return nil, err
	}
	logger := hclog.New(&hclog.LoggerOptions{Name: "raft", Level: hclog.Warn, Output: s.logTo})
	transport, err := raft.NewTCPTransportWithLogger(own, advertise, 3, 10*time.Second, logger)
	if err != nil {
		return nil, err
	}
	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(strconv.Itoa(int(s.number)))
	config.Logger = logger
	config.BatchApplyCh = true
	config.HeartbeatTimeout, config.ElectionTimeout = s.heartbeat, s.election
	config.LeaderLeaseTimeout = s.heartbeat / 2 // as by default
	n := &node{number: s.number, store: newStore(), transport: transport, verifiesReads: s.verifiesReads,
		changes: make(chan bool, 16)}
	config.NotifyCh = n.changes
	logs := raft.NewInmemStore()
	n.raft, err = raft.NewRaft(config, n.store, logs, logs, raft.NewInmemSnapshotStore(), transport)
	if err != nil {
		_ = transport.Close()
		return nil, err
	}
	go n.follow()
	// Every member is told the same, so it does not matter who is first.
	if err := n.raft.BootstrapCluster(configurationOf(s.members)).Error(); err != nil {
		n.stop()
		return nil, err
	}
	return n, nil
}

func configurationOf(members []string) raft.Configuration {
	var configuration raft.Configuration
	for i, address := range members {
		configuration.Servers = append(configuration.Servers, raft.Server{
			Suffrage: raft.Voter, ID: raft.ServerID(strconv.Itoa(i + 1)), Address: raft.ServerAddress(address)})
	}
	return configuration
}

// follow lets a new leader serve only when its state machine has caught up: before that a read could be of the past.
func (n *node) follow() {
	for leads := range n.changes {
		term := n.raft.CurrentTerm()
		if leads && n.raft.Barrier(0).Error() == nil {
			n.serving.Store(term)
		}
	}
}

func (n *node) leads() bool {
	return n.raft.State() == raft.Leader && n.raft.CurrentTerm() == n.serving.Load()
}

// leader is its number, or 0 if this node knows none.
func (n *node) leader() uint32 {
	_, id := n.raft.LeaderWithID()
	return numberOf(id)
}

func (n *node) stop() {
	_ = n.raft.Shutdown().Error() // nothing of raft runs after this
	close(n.changes)
	_ = n.transport.Close()
}

// status is what the lab asks for: one line of JSON.
func (n *node) status() string {
	leader := n.leader()
	ready := leader != 0 && (leader != n.number || n.leads())
	return fmt.Sprintf("{\"leads\":%v,\"ready\":%v,\"leader\":%d,\"term\":%d}\n", n.leads(), ready, leader,
		n.raft.CurrentTerm())
}

func splitMembers(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
