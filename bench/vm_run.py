# SPDX-License-Identifier: Apache-2.0
"""An experiment inside a machine of the lane (deploy/vm): a stock kernel with netem and fq, in virtual time.

Figures from there are a model: one emulated CPU, a nanosecond per instruction, no caches. They repeat exactly.
"""

import json
import shutil
import sys
from pathlib import Path

from bench.manifest import ROOT, build_dir, commit
from deploy.dev import temporary
from deploy.vm import image, kernels, machine

SERIES = tuple(kernels.SUITES)
_TIMEOUT_S = 1800


def run(series: str, module: str, arguments: list[str], name: str) -> Path | None:
    """Runs bench.MODULE there and shows what it prints. The folder results/NAME-vm-SERIES that its results came into;
    None when the machine, or what the experiment must show, failed."""
    folder, started = ROOT / "results" / f"{name}-vm-{series}", commit()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        kernel = kernels.get(series)
        with temporary.folder("vm") as scratch:
            words = [module, name, *arguments]
            archive = image.build(kernel, image.PARTS / "bench.sh", words, build_dir(), Path(scratch))
            outcome = machine.run(kernel, archive, machine.Settings(timeout_s=_TIMEOUT_S), folder,
                                  lambda line: print(line, flush=True))
    except kernels.Unavailable as why:
        print(f"bench: SKIPPED: {why}", file=sys.stderr)
        return None
    except kernels.Broken as why:
        print(f"bench: {why}", file=sys.stderr)
        return None
    if outcome.status == machine.NO_END:
        print(f"bench: {outcome.why_not()}", file=sys.stderr)
    if (summary := folder / "summary.json").exists():
        content = json.loads(summary.read_text(encoding="ascii"))
        content["manifest"].update(started)  # the machine has no git
        content["manifest"]["changed_meanwhile"] += [key for key, now in commit().items() if now != started[key]]
        summary.write_text(json.dumps(content, indent=1) + "\n", encoding="ascii")
    return folder if outcome.status == 0 else None
