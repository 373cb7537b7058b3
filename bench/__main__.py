# SPDX-License-Identifier: Apache-2.0
"""Where the commands of `./dev` that experiment begin: `python3 -m bench MODULE [ARGS]` runs the experiment that the
module declares, or its main, and ends it cleanly (stopping.py)."""

import importlib
import sys

from bench import stopping

del sys.argv[0]
module = importlib.import_module(sys.argv[0])
stopping.run(getattr(module, "main", None) or module.EXPERIMENT.main)
