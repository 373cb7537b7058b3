# SPDX-License-Identifier: Apache-2.0
"""A node of the lab gets the priority of the shipped unit, or an error that says why not."""

import pytest

from deploy.lab.unit_priority import command_prefix


def _prefix(tmp_path, service: str) -> list[str]:
    unit = tmp_path / "x.service"
    unit.write_text(f"[Unit]\nNice=7\n[Service]\nType=exec\n# Nice=8\n{service}\n", encoding="utf-8")
    return command_prefix(unit)


def test_the_shipped_unit_can_be_had():
    command_prefix()


@pytest.mark.parametrize(("service", "prefix"), [
    ("", []), ("Nice=-5", ["nice", "-n", "-5"]),
    ("CPUSchedulingPolicy=fifo\nCPUSchedulingPriority=10", ["chrt", "--fifo", "10"]),
    ("CPUSchedulingPolicy=batch\nNice=3", ["chrt", "--batch", "0", "nice", "-n", "3"])])
def test_what_decides_the_priority_is_taken(tmp_path, service, prefix):
    assert _prefix(tmp_path, service) == prefix


@pytest.mark.parametrize("service", ["CPUWeight=500", "CPUSchedulingPolicy=strange"])
def test_what_cannot_be_had_is_an_error(tmp_path, service):
    with pytest.raises(ValueError):
        _prefix(tmp_path, service)
