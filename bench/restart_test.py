# SPDX-License-Identifier: Apache-2.0
"""What `./dev bench restart` must show, on made-up rows: each check can fail."""

import pytest

from bench import restart

THRESHOLDS = restart.Thresholds(every_entries=1000, every_bytes=1 << 30, tail_entries=100, tail_bytes=1 << 20)


def rows(**changed) -> list[dict]:
    disk = {"what": "disk", "entries": 5000, "entries_wanted": 5000, "peak_bytes": 90, "rest_bytes": 80, "bound_bytes": 100}
    made = {"what": "restart of one", "seconds": 2.0, "log_entries": 900, "log_entries_bound": THRESHOLDS.entries()}
    return [{**each, **{key: value for key, value in changed.items() if key in each}} for each in [disk, *[made] * 4]]


def missed(found: list[dict]) -> list[str]:
    return [check.what for check in restart.must_show(found) if not check.met]


def test_what_is_as_it_should_be_is_met():
    assert missed(rows()) == []


@pytest.mark.parametrize(("changed", "what"), [
    ({"entries": 4999}, "entries in the log's life"), ({"seconds": 30.1}, "the longest restart"),
    ({"log_entries": 5000}, "entries that a restart reads"), ({"peak_bytes": 101}, "the most disk that was used"),
    ({"rest_bytes": 101}, "the most disk at rest")])
def test_each_check_can_fail(changed, what):
    assert [found for found in missed(rows(**changed)) if found.startswith(what)], changed


def test_without_rows_nothing_is_met():
    assert len(missed([])) == 6


def test_what_the_log_may_hold_is_the_smaller_of_entries_and_bytes():
    assert THRESHOLDS.log_bytes(200.0) == 1000 * 200 + 100 * 200
    assert THRESHOLDS.log_bytes(1e7) == (1 << 30) + (1 << 20)
