# SPDX-License-Identifier: Apache-2.0
"""For all Python tests, wherever they stand."""

import os


def pytest_collection_modifyitems(config, items):
    if os.environ.get("HEDGEROW_LONG") == "1":
        return
    long = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)  # pytest's last line counts them
    items[:] = [item for item in items if not item.get_closest_marker("long")]
