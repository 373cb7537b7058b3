// SPDX-License-Identifier: Apache-2.0

// What one key does, for porcupine: a counter that is incremented by one and read, or a register that is put and
// read. Both begin at 0, which for a register means that there is no such key. Written anew from the meaning of the
// operations, and sharing nothing with cluster/sim/history: a mistake in one of the two is not in the other.

package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// call is what a client asked for; result is what it was told. Without an answer a write may have been told anything.
type call struct {
	kind  kind
	value uint64 // what a put writes
}

type result struct {
	known bool
	value uint64 // what was read, or an increment's new number
}

var keyModel = porcupine.Model{
	Init: func() interface{} { return uint64(0) },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		return step(state.(uint64), input.(call), output.(result))
	},
	Hash: func(state interface{}) uint64 { return state.(uint64) },
	DescribeOperation: func(input, output interface{}) string {
		return fmt.Sprintf("%c%d -> %v", input.(call).kind, input.(call).value, output.(result))
	},
}

// step says whether a key that holds `state` could have answered so, and what it holds then.
func step(state uint64, asked call, told result) (bool, uint64) {
	switch asked.kind {
	case increment:
		return !told.known || told.value == state+1, state + 1
	case put:
		return true, asked.value
	case readCounter, get:
		return told.known && told.value == state, state
	}
	panic(fmt.Sprintf("no such kind of operation: %q", asked.kind))
}
