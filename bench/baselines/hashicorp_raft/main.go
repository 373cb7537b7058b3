// SPDX-License-Identifier: Apache-2.0

// hr-hashicorp-raft: one node of a key-value store on hashicorp/raft, to compare ours with. Everything in memory. It
// speaks enough of our client protocol that hr-kv-load measures both (hkv.go). Started by deploy/lab for `./dev bench
// kv`; ends at SIGTERM or SIGINT.

package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/raft"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "hr-hashicorp-raft: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	defaults := raft.DefaultConfig()
	number := flag.Uint("node", 0, "number of this node, from 1")
	members := flag.String("members", "", "address:port of each node for its peers (TCP), by number, with commas")
	serve := flag.String("serve", "", "address:port for clients (UDP)")
	status := flag.String("status-socket", "", "a unix socket that reports the leader to each connection")
	reads := flag.String("reads", "verify",
		"verify: a read asks a quorum first (VerifyLeader) and is linearizable; lease: it trusts the leader's lease")
	heartbeat := flag.Duration("heartbeat-timeout", defaults.HeartbeatTimeout, "raft's; its lease is half of it")
	election := flag.Duration("election-timeout", defaults.ElectionTimeout, "raft's")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("does not know what '%s' is", flag.Arg(0))
	}
	if *reads != "verify" && *reads != "lease" {
		return fmt.Errorf("--reads is verify or lease, not '%s'", *reads)
	}
	n, err := startNode(settings{number: uint32(*number), members: splitMembers(*members), heartbeat: *heartbeat,
		election: *election, verifiesReads: *reads == "verify", logTo: os.Stderr})
	if err != nil {
		return err
	}
	defer n.stop()
	f, err := newFront(n, *serve)
	if err != nil {
		return err
	}
	if *status != "" {
		// What a node that was killed has left; only one node has this name.
		_ = os.Remove(*status)
		listener, err := net.Listen("unix", *status)
		if err != nil {
			return err
		}
		defer listener.Close()
		go sayStatus(listener, n)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-asked
		f.socket.Close()
	}()
	f.serve()
	return nil
}

func sayStatus(listener net.Listener, n *node) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = connection.Write([]byte(n.status()))
		connection.Close()
	}
}
