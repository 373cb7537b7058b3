# SPDX-License-Identifier: Apache-2.0
"""Percentiles of a history that hr-kv-chaos wrote, as a client in an open loop sees them: each wait counts from when the
request was meant to leave. Called by bench/membership.py and bench/raft_hedge.py.
"""

from collections.abc import Iterable

from bench.histogram import Histogram
from chaos.systems import CLIENT_TIMEOUT_S
from chaos.unavailable import Request

_PERCENTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}


def figures(requests: Iterable[Request]) -> dict:
    """A request without an answer, or with an error, has waited its whole time-out."""
    histogram, lost = Histogram(), 0
    for request in requests:
        lost += not request.ok
        histogram.record(request.ended_ns - request.intended_ns if request.ok else int(CLIENT_TIMEOUT_S * 1e9))
    return {"n": histogram.count, "lost": lost,
            **{name: histogram.quantile(share) / 1e6 for name, share in _PERCENTILES.items()},
            "latency": histogram.to_json()}
