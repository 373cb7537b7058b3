// SPDX-License-Identifier: Apache-2.0

// The program as chaos meets it: files, exit status, and one line of JSON.

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	text := strings.Join(append([]string{header}, lines...), "\n") + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func runOn(t *testing.T, arguments ...string) (int, verdict, string) {
	t.Helper()
	var out, stderr bytes.Buffer
	code := run(arguments, &out, &stderr)
	var found verdict
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &found); err != nil {
			t.Fatalf("'%s' is no JSON: %v", out.String(), err)
		}
	}
	return code, found, stderr.String()
}

const onePut, readIt = "0,p,3,7,1,1,5,ok,1", "1000000,g,3,7,9,9,10,ok,1"

func TestExitStatusIsTheVerdict(t *testing.T) {
	history := write(t, "history.csv", onePut, "1,i,0,0,1,1,5,timed_out,1")
	good := write(t, "good.csv", readIt, "1000000,c,0,1,9,9,10,ok,1")
	bad := write(t, "bad.csv", readIt, "1000000,c,0,2,9,9,10,ok,1")
	if code, found, said := runOn(t, history, good); code != exitLinearizable || !found.Linearizable {
		t.Errorf("exit %d, %+v, %s", code, found, said)
	}
	if code, found, said := runOn(t, history, bad); code != exitViolated || found.Linearizable {
		t.Errorf("exit %d, %+v, %s", code, found, said)
	}
	if code, found, said := runOn(t, "--timeout=0s", history, good); code != exitTimedOut || found.Linearizable {
		t.Errorf("exit %d, %+v, %s", code, found, said)
	}
	if code, _, said := runOn(t, history, history); code != exitNoHistory {
		t.Errorf("exit %d, %s", code, said)
	}
	if code, _, said := runOn(t, history); code != exitNoHistory || !strings.Contains(said, "usage") {
		t.Errorf("exit %d, %s", code, said)
	}
	if code, _, said := runOn(t, history, filepath.Join(t.TempDir(), "none")); code != exitNoHistory {
		t.Errorf("exit %d, %s", code, said)
	}
}

func TestLinesThatAreNoRecordsAreRefusedWithTheirNumber(t *testing.T) {
	good := write(t, "good.csv", readIt)
	for what, line := range map[string]string{
		"is no record":            "0,p,3,7,1,1,5,ok",
		"no operation 's'":        "0,s,3,7,1,1,5,ok,1",
		"no ending 'maybe'":       "0,p,3,7,1,1,5,maybe,1",
		"the run was cut off":     "0,p,3,7,1,1,5,pending,1",
		"ended before":            "0,p,3,7,1,6,5,ok,1",
		"invalid syntax":          "0,p,3,-7,1,1,5,ok,1",
		"value out of range":      "0,p,4294967296,7,1,1,5,ok,1",
		"parsing \"9223372036854": "0,p,3,7,1,1,9223372036854775808,ok,1",
	} {
		code, _, said := runOn(t, write(t, "history.csv", onePut, line), good)
		if code != exitNoHistory || !strings.Contains(said, what) || !strings.Contains(said, "line 3") {
			t.Errorf("'%s': exit %d, wanted '%s' of line 3: %s", line, code, what, said)
		}
	}
}

func TestAFileOfAnotherKindIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.csv")
	if err := os.WriteFile(path, []byte("a,b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, said := runOn(t, path, path); code != exitNoHistory || !strings.Contains(said, "does not begin with") {
		t.Errorf("exit %d, %s", code, said)
	}
}
