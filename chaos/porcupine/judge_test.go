// SPDX-License-Identifier: Apache-2.0

// Histories whose verdict is known: small ones by hand, and runs of a store of a few lines in which one thing is then
// made wrong.

package main

import (
	"math/rand"
	"strings"
	"testing"
	"time"
)

var (
	counter0  = keyID{counter: true, number: 0}
	register0 = keyID{number: 0}
)

func answered(k kind, value uint64, sentNs, endedNs int64) record {
	return record{kind: k, key: keyID{counter: k.counts()}, value: value, sentNs: sentNs, endedNs: endedNs, answered: true}
}

func unanswered(k kind, value uint64, sentNs, endedNs int64) record {
	one := answered(k, value, sentNs, endedNs)
	one.answered = false
	return one
}

func judged(t *testing.T, history, finals []record) verdict {
	t.Helper()
	found, err := judge(history, finals, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func expect(t *testing.T, linearizable bool, history, finals []record) {
	t.Helper()
	if found := judged(t, history, finals); found.Linearizable != linearizable {
		t.Errorf("linearizable: %v, wanted %v: %+v", found.Linearizable, linearizable, found)
	}
}

func counterIs(value uint64) []record  { return []record{answered(readCounter, value, 1000, 1001)} }
func registerIs(value uint64) []record { return []record{answered(get, value, 1000, 1001)} }

func TestAHistoryOfOneStoreIsLinearizable(t *testing.T) {
	found := judged(t, []record{answered(increment, 1, 1, 2), unanswered(increment, 0, 3, 8), answered(increment, 3, 9, 10),
		answered(put, 7, 1, 2), answered(get, 7, 3, 4), unanswered(put, 8, 5, 9), unanswered(get, 0, 6, 11)},
		append(counterIs(3), registerIs(8)...))
	if !found.Linearizable || found.Operations != 7 || found.Keys != 2 || found.Open != 2 {
		t.Errorf("%+v", found)
	}
}

func TestALostIncrementIsSeen(t *testing.T) {
	expect(t, false, []record{answered(increment, 1, 1, 2), answered(increment, 2, 3, 4)}, counterIs(1))
	expect(t, false, []record{answered(increment, 1, 1, 4), answered(increment, 1, 2, 3)}, counterIs(1))
}

func TestAnIncrementAppliedTwiceIsSeen(t *testing.T) {
	expect(t, false, []record{answered(increment, 1, 1, 2), answered(increment, 3, 3, 4)}, counterIs(3))
	expect(t, false, []record{unanswered(increment, 0, 1, 2)}, counterIs(2))
}

func TestAStaleReadIsSeen(t *testing.T) {
	puts := []record{answered(put, 7, 1, 2), answered(put, 8, 3, 4)}
	expect(t, false, append(puts, answered(get, 7, 5, 6)), registerIs(8))
	expect(t, true, append(puts, answered(get, 7, 4, 6)), registerIs(8)) // began at the instant of the answer: concurrent
	expect(t, false, []record{answered(increment, 1, 1, 2), answered(readCounter, 0, 3, 4)}, counterIs(1))
}

func TestALostPutIsSeen(t *testing.T) {
	expect(t, false, []record{answered(put, 7, 1, 2), answered(put, 8, 3, 4)}, registerIs(7))
	expect(t, false, []record{answered(put, 7, 1, 2)}, registerIs(0))
}

func TestAValueOutOfNowhereIsSeen(t *testing.T) {
	expect(t, false, []record{answered(put, 7, 1, 2), answered(get, 9, 3, 4)}, registerIs(7))
}

func TestAWriteWithoutAnAnswerMayComeAtAnyLaterTimeOrNever(t *testing.T) {
	open := unanswered(put, 7, 1, 2)
	expect(t, true, []record{open, answered(put, 8, 3, 4)}, registerIs(7))
	expect(t, true, []record{open, answered(put, 8, 3, 4)}, registerIs(8))
	expect(t, true, []record{open, answered(put, 8, 3, 4), answered(get, 8, 5, 6), answered(get, 7, 7, 8)}, registerIs(7))
	expect(t, false, []record{open, answered(get, 7, 5, 6), answered(get, 0, 7, 8)}, registerIs(7))
	late := unanswered(put, 7, 5, 6)
	expect(t, false, []record{late, answered(get, 7, 3, 4)}, registerIs(7)) // not before it was sent
}

func TestReplicasThatDifferAreSeen(t *testing.T) {
	expect(t, false, []record{answered(put, 7, 1, 2)},
		[]record{answered(get, 7, 1000, 1001), answered(get, 0, 1002, 1003)})
}

func TestKeysAreJudgedApartAndNamed(t *testing.T) {
	other := answered(put, 7, 1, 2)
	other.key.number = 5
	read := answered(get, 8, 1000, 1001)
	read.key.number = 5
	found := judged(t, []record{answered(put, 7, 1, 2), other}, append(registerIs(7), read))
	if found.Linearizable || len(found.Violations) != 1 || !strings.HasPrefix(found.Violations[0], "register5: ") {
		t.Errorf("%+v", found)
	}
}

func TestAHistoryThatSaysNothingIsRefused(t *testing.T) {
	for what, files := range map[string][2][]record{
		"not read in the end":      {{answered(put, 7, 1, 2)}, {}},
		"is none":                  {{answered(put, 7, 1, 2)}, {answered(put, 7, 20, 21)}},
		"has no answer":            {{answered(put, 7, 1, 2)}, {unanswered(get, 7, 20, 21)}},
		"before all operations":    {{answered(put, 7, 1, 30)}, {answered(get, 7, 20, 21)}},
		"9 operations outstanding": {together(9), registerIs(1)},
	} {
		if _, err := judge(files[0], files[1], time.Minute); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("wanted an error that says '%s': %v", what, err)
		}
	}
}

// together is that many puts, all under way at once; half of them for ever.
func together(count int) []record {
	var puts []record
	for i := 0; i < count; i++ {
		one := answered(put, uint64(i)+1, int64(i), 100)
		one.answered = i%2 == 0
		puts = append(puts, one)
	}
	return puts
}

func TestEightOutstandingAreTriedAndReadsWithoutAnAnswerAreNone(t *testing.T) {
	history := together(8)
	for i := int64(0); i < 20; i++ {
		history = append(history, unanswered(get, 0, 10, 90))
	}
	if found := judged(t, history, registerIs(8)); !found.Linearizable || found.MostOutstanding != 8 {
		t.Errorf("%+v", found)
	}
}

func TestWhatEndsWhenAnotherBeginsIsNotOutstandingBesideIt(t *testing.T) {
	var puts []record
	for i := int64(0); i < 20; i++ {
		puts = append(puts, answered(put, uint64(i)+1, i, i+1))
	}
	if found := judged(t, puts, registerIs(20)); found.MostOutstanding != 1 {
		t.Errorf("%+v", found)
	}
}

func TestTimeThatDoesNotSufficeIsNoVerdict(t *testing.T) {
	found, err := judge(together(8), registerIs(8), 0)
	if err != nil || found.Linearizable || len(found.Undecided) != 1 || len(found.Violations) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// storeRun is what clients see of a counter and a register that do one thing at a time: a few operations are under way
// together, each takes effect at an instant of its own, and one write in `unknown` is not answered.
func storeRun(seed int64, operations, unknown int) (history, finals []record) {
	random := rand.New(rand.NewSource(seed))
	now, count, value := int64(1), uint64(0), uint64(0)
	open := map[keyID]int{}
	for len(history) < operations {
		now += 10
		k := []kind{increment, readCounter, put, get}[random.Intn(4)]
		one := record{kind: k, key: keyID{counter: k.counts()}, answered: !k.writes() || random.Intn(unknown) > 0,
			sentNs: now - 1 - random.Int63n(25), endedNs: now + 1 + random.Int63n(25)}
		if !one.answered && open[one.key] == 2 {
			continue // what is open stays so, and is outstanding for ever
		}
		happens := one.answered || random.Intn(2) == 0
		switch {
		case k == increment && happens:
			count++
			one.value = count
		case k == readCounter:
			one.value = count
		case k == put:
			one.value = uint64(len(history)) + 1
			if happens {
				value = one.value
			}
		case k == get:
			one.value = value
		}
		if !one.answered {
			open[one.key]++
			if k == increment {
				one.value = 0
			}
		}
		history = append(history, one)
	}
	after := now + 1000
	return history, []record{answered(readCounter, count, after, after+1), answered(get, value, after+2, after+3)}
}

func TestRunsOfAStoreAreLinearizableAndPlantedFaultsAreSeen(t *testing.T) {
	faults := map[string]func(*rand.Rand, []record, []record) bool{
		"lost increment": func(_ *rand.Rand, _, finals []record) bool { finals[0].value--; return true },
		"double apply": func(random *rand.Rand, history, finals []record) bool {
			// From some increment on, everybody sees one more than there was.
			from := history[random.Intn(len(history))].endedNs
			for i := range history {
				if history[i].kind.counts() && history[i].answered && history[i].sentNs > from {
					history[i].value += 3 // more than the open ones can explain
				}
			}
			finals[0].value += 3
			return true
		},
		"stale read": func(random *rand.Rand, history, _ []record) bool {
			for _, i := range random.Perm(len(history)) {
				if history[i].kind == get && history[i].value > 30 {
					history[i].value = 0 // what no client can have read for a long time
					return true
				}
			}
			return false
		},
	}
	for seed := int64(1); seed <= 30; seed++ {
		history, finals := storeRun(seed, 400, 20)
		expect(t, true, history, finals)
		for name, plant := range faults {
			history, finals := storeRun(seed, 400, 20)
			if !plant(rand.New(rand.NewSource(seed)), history, finals) {
				t.Fatalf("seed %d: found no place for a %s", seed, name)
			}
			if found := judged(t, history, finals); found.Linearizable {
				t.Errorf("seed %d: a %s was not seen", seed, name)
			}
		}
	}
}
