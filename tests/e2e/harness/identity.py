# SPDX-License-Identifier: Apache-2.0
"""The accounting identity: every request the proxy saw is in exactly one of nine places.

Read from `hedgerow status --json` after each end-to-end test. in_flight is counted from the kernel's map, so a
request that a program forgot to account for shows here and nowhere else.
"""

PARTS = ("won_by_first", "won_by_rescue", "won_by_failover", "nacked", "unanswered", "superseded", "evicted",
         "passed_through", "in_flight")

# Reasons that account for passed_through, one for one (bpf/abi/stats_abi.h, "forwarded untracked").
FORWARDED = ("bypass", "not_hedged", "fragment", "gso", "too_big", "unknown_operation", "retransmission", "pool_full",
             "requests_full", "key_busy", "ip_options", "wheel_contended", "copy_failed", "scoreboard_full",
             "trailing_bytes", "one_way", "no_daemon", "reloading")


def violations(status: dict) -> list[str]:
    """What is wrong with the books of a status, one sentence each; empty when they balance."""
    services = status.get("services", [])
    found = [] if services else ["status lists no service"]
    for service in services:
        name = service.get("name", "?")
        parts = {part: number(service, part) for part in PARTS}
        requests, total = number(service, "requests"), sum(parts.values())
        if requests != total:
            found.append(f"{name}: {requests} requests, but its parts sum up to {total}: {parts}")
        reasons = service.get("reasons", {})
        explained = sum(number(reasons, reason) for reason in FORWARDED)
        if parts["passed_through"] != explained:
            found.append(f"{name}: {parts['passed_through']} passed through, but reasons explain {explained}: "
                         f"{reasons}")
        if service.get("identity_ok", False) is not (requests == total):
            found.append(f"{name}: identity_ok says {service.get('identity_ok')}")
    return found


def number(mapping: dict, key: str) -> int:
    """Protobuf's JSON writes 64-bit numbers as strings, and may leave out zeros."""
    return int(mapping.get(key, 0))
