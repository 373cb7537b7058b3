// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func known(value uint64) result { return result{known: true, value: value} }

func TestAnIncrementIsByOneAndSaysSo(t *testing.T) {
	if ok, next := step(4, call{kind: increment}, known(5)); !ok || next != 5 {
		t.Errorf("4 incremented to %d, allowed %v", next, ok)
	}
	for _, told := range []uint64{0, 4, 6} {
		if ok, _ := step(4, call{kind: increment}, known(told)); ok {
			t.Errorf("4 incremented is not %d", told)
		}
	}
}

func TestAnUnansweredWriteMayHaveBeenToldAnything(t *testing.T) {
	if ok, next := step(4, call{kind: increment}, result{}); !ok || next != 5 {
		t.Errorf("4 incremented to %d, allowed %v", next, ok)
	}
	if ok, next := step(4, call{kind: put, value: 9}, result{}); !ok || next != 9 {
		t.Errorf("9 was put and %d is there, allowed %v", next, ok)
	}
}

func TestAPutReplacesWhateverIsThere(t *testing.T) {
	if ok, next := step(4, call{kind: put, value: 9}, known(9)); !ok || next != 9 {
		t.Errorf("9 was put and %d is there, allowed %v", next, ok)
	}
}

func TestAReadTellsWhatIsThereAndChangesNothing(t *testing.T) {
	for _, read := range []kind{readCounter, get} {
		if ok, next := step(4, call{kind: read}, known(4)); !ok || next != 4 {
			t.Errorf("a read left %d, allowed %v", next, ok)
		}
		for _, told := range []uint64{0, 3, 5} {
			if ok, _ := step(4, call{kind: read}, known(told)); ok {
				t.Errorf("a read of 4 may not say %d", told)
			}
		}
	}
}

func TestAKeyBeginsAtZero(t *testing.T) {
	if state := keyModel.Init(); state != uint64(0) {
		t.Errorf("a key begins with %v", state)
	}
}

func TestAnUnknownOperationIsNoModelOfAnything(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a compare-and-set was taken for something else")
		}
	}()
	step(4, call{kind: 's'}, known(4))
}
