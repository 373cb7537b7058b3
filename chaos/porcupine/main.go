// SPDX-License-Identifier: Apache-2.0

// hr-porcupine HISTORY FINAL: judges what the clients of a run saw with porcupine, a checker that others wrote, beside
// our own (chaos/check), and prints the verdict as JSON. Exit 0: linearizable; 1: not; 2: the files say nothing, or more
// is outstanding on a key than can be tried; 3: the time did not suffice, which proves nothing. Started by
// chaos/judgement.py.

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"
)

const (
	exitLinearizable = 0
	exitViolated     = 1
	exitNoHistory    = 2
	exitTimedOut     = 3
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(arguments []string, out, stderr io.Writer) int {
	flags := flag.NewFlagSet("hr-porcupine", flag.ContinueOnError)
	flags.SetOutput(stderr)
	timeout := flags.Duration("timeout", 100*time.Second, "after which the check is given up, and has failed")
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: hr-porcupine [--timeout DURATION] HISTORY FINAL")
		flags.PrintDefaults()
	}
	if err := flags.Parse(arguments); err != nil {
		return exitNoHistory
	}
	if flags.NArg() != 2 {
		flags.Usage()
		return exitNoHistory
	}
	found, err := judgeFiles(flags.Arg(0), flags.Arg(1), *timeout)
	if err == nil {
		err = json.NewEncoder(out).Encode(found)
	}
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "hr-porcupine: %v\n", err)
		return exitNoHistory
	case len(found.Violations) > 0:
		return exitViolated
	case len(found.Undecided) > 0:
		fmt.Fprintf(stderr, "hr-porcupine: not decided within %v: %d of %d keys\n", *timeout, len(found.Undecided),
			found.Keys)
		return exitTimedOut
	}
	return exitLinearizable
}

func judgeFiles(history, final string, timeout time.Duration) (verdict, error) {
	records, err := readFile(history)
	if err != nil {
		return verdict{}, err
	}
	finals, err := readFile(final)
	if err != nil {
		return verdict{}, err
	}
	return judge(records, finals, timeout)
}

// porcupineVersion is what go.mod asked for, as the build noted it.
func porcupineVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/anishathalye/porcupine" {
				return module.Version
			}
		}
	}
	return "unknown"
}
