// SPDX-License-Identifier: Apache-2.0

// The state machine: a map. A log entry is the body of a WRITE. No sessions: hashicorp/raft leaves doing things once to
// its users.

package main

import (
	"encoding/gob"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

type store struct {
	mutex  sync.RWMutex // raft's thread writes, those that answer read
	values map[string][]byte
}

func newStore() *store { return &store{values: map[string][]byte{}} }

// Apply says how many puts it did. It keeps slices of the entry, which raft does not write to again.
func (s *store) Apply(entry *raft.Log) interface{} {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	done := 0
	eachPut(entry.Data, func(key, value []byte) {
		s.values[string(key)] = value
		done++
	})
	return done
}

func (s *store) get(key []byte) ([]byte, bool) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	value, found := s.values[string(key)]
	return value, found
}

// Snapshot copies the map and not what it holds: values are replaced, never changed.
func (s *store) Snapshot() (raft.FSMSnapshot, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	values := make(map[string][]byte, len(s.values))
	for key, value := range s.values {
		values[key] = value
	}
	return snapshot(values), nil
}

func (s *store) Restore(from io.ReadCloser) error {
	defer from.Close()
	values := map[string][]byte{}
	if err := gob.NewDecoder(from).Decode(&values); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.values = values
	return nil
}

type snapshot map[string][]byte

func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if err := gob.NewEncoder(sink).Encode(map[string][]byte(s)); err != nil {
		_ = sink.Cancel() // the first error is the one to tell
		return err
	}
	return sink.Close()
}

func (s snapshot) Release() {}
