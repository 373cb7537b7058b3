# SPDX-License-Identifier: Apache-2.0
"""`python3 -m bench MODULE` runs that module's main, and its manifest names the command of ./dev that does the run again."""

import subprocess
import sys

from bench.manifest import ROOT


def test_a_module_runs_and_knows_its_command(tmp_path):
    (tmp_path / "told.py").write_text("from bench import manifest\n\n\ndef main(argv):\n    print(argv, manifest.command())\n    return 7\n",
                                      encoding="ascii")
    done = subprocess.run([sys.executable, "-m", "bench", "told", "--rounds=2"], cwd=ROOT, env={"PYTHONPATH": str(tmp_path)}, capture_output=True,
                          text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "['--rounds=2'] unknown\n"), done.stderr
    done = subprocess.run([sys.executable, "-c", "import sys\nsys.argv = ['bench.kv', '--rounds=2']\nimport bench.kv\n"
                           "print(bench.manifest.command())\n"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "./dev bench kv --rounds=2\n"
