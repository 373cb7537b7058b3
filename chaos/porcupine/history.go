// SPDX-License-Identifier: Apache-2.0

// Reads the histories that the loads of chaos/ write: CSV, described in chaos/load/history_file.h. Whatever is not
// exactly that is an error: a line that is misread could hide a violation.

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

const header = "client,kind,key,value,intended_ns,sent_ns,ended_ns,ending,attempts"

type kind byte

const (
	increment   kind = 'i'
	readCounter kind = 'c'
	put         kind = 'p'
	get         kind = 'g'
)

func (k kind) counts() bool { return k == increment || k == readCounter }
func (k kind) writes() bool { return k == increment || k == put }

// keyID names a key: counters and registers are numbered apart.
type keyID struct {
	counter bool
	number  uint32
}

func (id keyID) String() string {
	if id.counter {
		return fmt.Sprintf("counter%d", id.number)
	}
	return fmt.Sprintf("register%d", id.number)
}

type record struct {
	kind            kind
	key             keyID
	value           uint64
	sentNs, endedNs int64
	answered        bool // else it timed out, or was answered with an error
}

func readFile(path string) ([]record, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	records, err := readHistory(file)
	if err != nil {
		return nil, fmt.Errorf("'%s': %w", path, err)
	}
	return records, nil
}

func readHistory(from io.Reader) ([]record, error) {
	lines := bufio.NewScanner(from)
	if !lines.Scan() || lines.Text() != header {
		return nil, fmt.Errorf("does not begin with the line %s", header)
	}
	var records []record
	for lines.Scan() {
		one, err := parseLine(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("line %d, '%s': %w", len(records)+2, lines.Text(), err)
		}
		records = append(records, one)
	}
	return records, lines.Err()
}

func parseLine(line string) (record, error) {
	fields := strings.Split(line, ",")
	if len(fields) != 9 || len(fields[1]) != 1 {
		return record{}, fmt.Errorf("is no record")
	}
	one := record{kind: kind(fields[1][0])}
	if !one.kind.counts() && one.kind != put && one.kind != get {
		return record{}, fmt.Errorf("there is no operation '%s'", fields[1])
	}
	var numbers [9]uint64
	for _, at := range []int{0, 2, 3, 4, 5, 6, 8} {
		// Times are compared as signed numbers; 2^63 ns are 292 years.
		bits := 63
		if at == 0 || at == 2 || at == 8 {
			bits = 32
		} else if at == 3 {
			bits = 64
		}
		number, err := strconv.ParseUint(fields[at], 10, bits)
		if err != nil {
			return record{}, err
		}
		numbers[at] = number
	}
	one.key = keyID{counter: one.kind.counts(), number: uint32(numbers[2])}
	one.value, one.sentNs, one.endedNs = numbers[3], int64(numbers[5]), int64(numbers[6])
	switch fields[7] {
	case "ok":
		one.answered = true
	case "timed_out", "error":
	case "pending":
		return record{}, fmt.Errorf("has not ended: the run was cut off")
	default:
		return record{}, fmt.Errorf("there is no ending '%s'", fields[7])
	}
	if one.endedNs < one.sentNs {
		return record{}, fmt.Errorf("ended before it was sent")
	}
	return one, nil
}
