// SPDX-License-Identifier: Apache-2.0

// Hands each key's operations to porcupine, and adds up what it says. Keys are independent: a history is linearizable
// exactly if that of each key is (Herlihy and Wing, section 3.1: linearizability is local).

package main

import (
	"fmt"
	"math"
	"runtime"
	"sort"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Porcupine searches through the orders of what was under way together, so its time may grow with the power of this
// number. The loads keep to it (chaos/load/key_rooms.h); a history that does not is refused, not tried.
const outstandingMax = 8

// never is the return of an operation whose answer never came: it may take effect at any later time, or, as far as
// any client has seen, not at all.
const never = int64(math.MaxInt64)

type verdict struct {
	Checker         string   `json:"checker"`
	Version         string   `json:"version"`
	Operations      int      `json:"operations"`
	Open            int      `json:"open"` // writes of unknown outcome
	Keys            int      `json:"keys"`
	MostOutstanding int      `json:"most_outstanding"` // on one key at a time
	Linearizable    bool     `json:"linearizable"`
	Violations      []string `json:"violations"`
	Undecided       []string `json:"undecided"` // keys for which the time did not suffice
	Seconds         float64  `json:"seconds"`
}

// judge fails for histories that say nothing. `finals` were read after everything else had ended.
func judge(history, finals []record, timeout time.Duration) (verdict, error) {
	start := time.Now()
	found := verdict{Checker: "porcupine", Version: porcupineVersion(), Operations: len(history),
		Violations: []string{}, Undecided: []string{}}
	keys, err := partition(history, finals)
	if err != nil {
		return found, err
	}
	found.Keys = len(keys)
	names := make([]keyID, 0, len(keys))
	for name, operations := range keys {
		names = append(names, name)
		for _, operation := range operations {
			if operation.Return == never {
				found.Open++
			}
		}
		together := mostOutstanding(operations)
		if together > outstandingMax {
			return found, fmt.Errorf("%s has %d operations outstanding at a time; more than %d are not tried",
				name, together, outstandingMax)
		}
		if together > found.MostOutstanding {
			found.MostOutstanding = together
		}
	}
	sort.Slice(names, func(i, j int) bool { return names[i].String() < names[j].String() })
	for i, result := range checkAll(names, keys, start.Add(timeout)) {
		text := fmt.Sprintf("%s: no order of its %d operations explains what was seen", names[i], len(keys[names[i]]))
		switch result {
		case porcupine.Illegal:
			found.Violations = append(found.Violations, text)
		case porcupine.Unknown:
			found.Undecided = append(found.Undecided, names[i].String())
		}
	}
	found.Linearizable = len(found.Violations) == 0 && len(found.Undecided) == 0
	found.Seconds = time.Since(start).Seconds()
	return found, nil
}

// partition makes porcupine's operations of the records, by key. A read without an answer tells nothing and changes
// nothing, so it is left out.
func partition(history, finals []record) (map[keyID][]porcupine.Operation, error) {
	keys := map[keyID][]porcupine.Operation{}
	used := map[keyID]bool{}
	lastEnd := int64(0)
	for _, one := range history {
		used[one.key] = true
		if one.endedNs > lastEnd {
			lastEnd = one.endedNs
		}
		if one.answered || one.kind.writes() {
			keys[one.key] = append(keys[one.key], operationOf(one))
		}
	}
	read := map[keyID]bool{}
	for _, one := range finals {
		if !one.answered || one.kind.writes() {
			return nil, fmt.Errorf("a final read of %s is none, or has no answer", one.key)
		}
		if one.sentNs < lastEnd {
			return nil, fmt.Errorf("a final read of %s was made before all operations had ended", one.key)
		}
		read[one.key] = true
		keys[one.key] = append(keys[one.key], operationOf(one))
	}
	for name := range used {
		if !read[name] {
			return nil, fmt.Errorf("%s was not read in the end", name)
		}
	}
	return keys, nil
}

func operationOf(one record) porcupine.Operation {
	operation := porcupine.Operation{Input: call{kind: one.kind}, Output: result{}, Call: one.sentNs, Return: never}
	if one.kind == put {
		operation.Input = call{kind: put, value: one.value}
	}
	if one.answered {
		operation.Output, operation.Return = result{known: true, value: one.value}, one.endedNs
	}
	return operation
}

// mostOutstanding counts what ends at the instant at which another begins as ended: it bounds the work and judges
// nothing. (Porcupine takes the two for concurrent.)
func mostOutstanding(operations []porcupine.Operation) int {
	calls, returns := make([]int64, len(operations)), make([]int64, len(operations))
	for i, operation := range operations {
		calls[i], returns[i] = operation.Call, operation.Return
	}
	sort.Slice(calls, func(i, j int) bool { return calls[i] < calls[j] })
	sort.Slice(returns, func(i, j int) bool { return returns[i] < returns[j] })
	most, ended := 0, 0
	for begun, at := range calls {
		for returns[ended] <= at && ended <= begun-1 {
			ended++
		}
		if together := begun + 1 - ended; together > most {
			most = together
		}
	}
	return most
}

// checkAll judges the keys, several at a time; the order of the results is that of the names.
func checkAll(names []keyID, keys map[keyID][]porcupine.Operation, deadline time.Time) []porcupine.CheckResult {
	results := make([]porcupine.CheckResult, len(names))
	next := make(chan int)
	var workers sync.WaitGroup
	for i := 0; i < runtime.NumCPU(); i++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for at := range next {
				results[at] = checkKey(keys[names[at]], time.Until(deadline))
			}
		}()
	}
	for at := range names {
		next <- at
	}
	close(next)
	workers.Wait()
	return results
}

func checkKey(operations []porcupine.Operation, left time.Duration) porcupine.CheckResult {
	if left <= 0 {
		return porcupine.Unknown // porcupine takes 0 for "without a limit"
	}
	return porcupine.CheckOperationsTimeout(keyModel, operations, left)
}
