# SPDX-License-Identifier: Apache-2.0
"""What is judged and compared, without booting anything."""

from pathlib import Path

import pytest

from deploy.vm import machine
from dst import run
from tests import needs

pytestmark = needs.JUDGES

_HEADER = "client,kind,key,value,intended_ns,sent_ns,ended_ns,ending,attempts\n"
_HISTORY = _HEADER + "0,p,0,7,100,100,200,ok,1\n0,g,0,7,300,300,400,ok,1\n"
_FINAL = _HEADER + "".join(f"{2**20 + node},g,0,7,900,900,950,ok,1\n" for node in range(3))


def _left(folder: Path, **files: str) -> Path:
    for name, text in {"history.csv": _HISTORY, "final.csv": _FINAL, "dmesg.txt": "[    0.0] Linux\n",
                       "proxy.json": '{"services": [{"identity_ok": true}]}', **files}.items():
        (folder / name).write_text(text, encoding="ascii")
    return folder


def _ended(status: int = 0, output: str = "") -> machine.Outcome:
    return machine.Outcome(status, output, f"hedgerow-vm: begin\n{output}", 1.0, False)


def test_a_sound_run_has_no_violation(tmp_path):
    assert run.violations(_left(tmp_path), _ended()) == []


@pytest.mark.parametrize("files, status, output, complaint", [
    ({}, 1, "trouble: node 2 has ended: signal 6\n", "node 2 has ended: signal 6"),
    ({}, 2, "no experiment: the proxy did not come up\n", "the proxy did not come up"),
    ({}, machine.NO_END, "", "without an exit status"),
    ({"dmesg.txt": "[    3.1] BUG: kernel NULL pointer dereference\n"}, 0, "", "NULL pointer"),
    ({"proxy.json": '{"services": [{"identity_ok": false}]}'}, 0, "", "books do not balance"),
    ({"history.csv": _HISTORY.replace("0,g,0,7", "0,g,0,0")}, 0, "", "register0"),
    ({"final.csv": _FINAL.replace(",7,", ",0,")}, 0, "", "lost")])
def test_what_must_not_happen_is_a_violation(tmp_path, files, status, output, complaint):
    found = run.violations(_left(tmp_path, **files), _ended(status, output))
    assert any(complaint in each for each in found), found


def test_a_run_without_a_history_is_none(tmp_path):
    assert run.violations(tmp_path, _ended()) == ["there is no history"]


@pytest.mark.parametrize("name, text", [("diary.txt", "0.000001 kill node 1\n"), ("diary.tx", "0.000000 kill node 1\n"), ("more", "")])
def test_a_digest_is_of_names_and_bytes(tmp_path, name, text):
    folders = [tmp_path / each for each in ("one", "same", "other")]
    for folder in folders:
        folder.mkdir()
        (folder / "diary.txt").write_text("0.000000 kill node 1\n", encoding="ascii")
    if not name.startswith("diary.txt") and name.startswith("diary"):
        (folders[2] / "diary.txt").unlink()
    (folders[2] / name).write_text(text, encoding="ascii")
    assert run.digest_of(folders[0]) == run.digest_of(folders[1]) != run.digest_of(folders[2])
    assert run.first_difference(folders[0], folders[1]) == ""
    assert name in run.first_difference(folders[0], folders[2])
