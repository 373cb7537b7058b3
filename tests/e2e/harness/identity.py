# SPDX-License-Identifier: Apache-2.0
"""The accounting identity: every request the proxy saw has ended in exactly one way, or is in flight.

Read from `hedgerow status --json` after each end-to-end test, which names the terms (`accounting`). in_flight is counted
from the kernel's map, so a request that a program forgot to account for shows here and nowhere else.
"""


def violations(status: dict) -> list[str]:
    """What is wrong with the books of a status, one sentence each; empty when they balance."""
    services, terms = status.get("services", []), status.get("accounting", {})
    found = [] if services else ["status lists no service"]
    found += [f"status names no {key}" for key in ("outcomes", "forwarded_reasons") if not terms.get(key)]
    for service in services if terms else []:
        name, counters, reasons = (service.get(key, {}) for key in ("name", "counters", "reasons"))
        parts = {part: number(counters, part) for part in terms.get("outcomes", [])}
        parts["in_flight"] = number(service, "in_flight")
        requests, total = number(counters, "requests"), sum(parts.values())
        if requests != total:
            found.append(f"{name}: {requests} requests, but its parts sum up to {total}: {parts}")
        passed = number(counters, "passed_through")
        explained = sum(number(reasons, reason) for reason in terms.get("forwarded_reasons", []))
        if passed != explained:
            found.append(f"{name}: {passed} passed through, but reasons explain {explained}: {reasons}")
        if service.get("identity_ok", False) is not (requests == total):
            found.append(f"{name}: identity_ok says {service.get('identity_ok')}")
    return found


def number(mapping: dict, key: str) -> int:
    """Protobuf's JSON writes 64-bit numbers as strings, and may leave out zeros."""
    return int(mapping.get(key, 0))
