/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The one list of counters. enum hr_counter, the names in `status`, the Prometheus families and their HELP, the table
 * in docs/metrics.md and the accounting identity are made of it. Adding a counter: a line here, and hr_count() where
 * it happens (docs/development.md). Numbers are stable and never reused: they stand in the pinned maps and in
 * dashboards.
 *
 * X(number, enumerator, name, family, help)
 *
 * The family is the section of docs/metrics.md, and decides the identity, which holds at rest:
 *   total: every request. outcome: how it ended, exactly one for each request.
 *   total = sum of the outcomes + requests in flight (counted from the request map).
 */
#pragma once

/* clang-format off */
#define HR_COUNTERS(X) \
  X(0, HR_REQUESTS, requests, total, \
    "UDP datagrams to the service; a fragmented one counts once, by its first fragment") \
  X(1, HR_WON_BY_FIRST, won_by_first, outcome, "the first send's backend answered first") \
  X(2, HR_WON_BY_HEDGE, won_by_hedge, outcome, "a hedge's backend answered first") \
  X(3, HR_WON_BY_FAILOVER, won_by_failover, outcome, \
    "a backend reached by steering around a suspect one, or after a negative reply, answered first") \
  X(4, HR_NACKED, nacked, outcome, "every attempt got a negative reply; the last one went to the client") \
  X(5, HR_UNANSWERED, unanswered, outcome, "the deadline passed") \
  X(6, HR_SUPERSEDED, superseded, outcome, "always 0: a newer request leaves the key to the one that waits") \
  X(7, HR_EVICTED, evicted, outcome, "forgotten by the kernel; always 0 while the request map is no LRU") \
  X(8, HR_PASSED_THROUGH, passed_through, outcome, \
    "forwarded untracked; `hedgerow_reasons_total` counts the reasons") \
  X(9, HR_HEDGES, hedges, hedging, \
    "speculative sends, paid from the budget. Extra load: divide by `hedgerow_requests_total`") \
  X(10, HR_FAILOVER_SENDS, failover_sends, hedging, \
    "unbudgeted sends around a backend that is suspect, down or sends negative replies, probes included") \
  X(11, HR_PROBES, probes, hedging, "of those, copies to a backend that is down, to see whether it is back") \
  X(12, HR_LOSERS_DROPPED, losers_dropped, hedging, "datagrams of a backend that did not win") \
  X(13, HR_NACKS_SWALLOWED, nacks_swallowed, hedging, \
    "negative replies dropped while an attempt remained, ICMP errors included") \
  X(14, HR_STALE_DROPPED, stale_dropped, hedging, \
    "replies to an older request with the same key, or to another question, dropped") \
  X(15, HR_REPLIES, replies, packets, "datagrams given to clients in the VIP's name") \
  X(16, HR_REPLIES_UNTRACKED, replies_untracked, packets, \
    "of those, without a tracked request: it was not hedged, or its retention is over") \
  X(17, HR_SUSPECTED, suspected, hedging, "times a backend became suspect") \
  X(18, HR_TCP_PACKETS, tcp_packets, packets, "TCP, both directions") \
  X(19, HR_LATER_FRAGMENTS, later_fragments, packets, "fragments that followed their first, both directions") \
  X(20, HR_PINGS, pings, packets, "echo requests answered for a VIP") \
  X(21, HR_ICMP_TRANSLATED, icmp_translated, packets, "ICMP errors passed on: to a client in the VIP's name, or to a backend in its own") \
  X(22, HR_LATE_ANSWERS, late_answers, hedging, "first answers after the deadline, given to the client") \
  X(23, HR_HANDED_OVER, handed_over, leaders, \
    "parked requests given to a newly announced leader that never got them, or has lost them (its process ended, " \
    "or more than a second has passed); also counted in `hedgerow_failover_sends_total`") \
  X(24, HR_LEADER_CHANGES, leader_changes, leaders, \
    "announcements that moved the requests to another backend") \
  X(25, HR_HINTED, hinted, leaders, "attempts sent to the leader that a negative reply named") \
  X(26, HR_WOULD_HEDGE, would_hedge, hedging, "dry runs: hedges that the budget would have paid for") \
  X(27, HR_WOULD_FAIL_OVER, would_fail_over, hedging, \
    "dry runs: requests that would have been steered around a backend that is silent or sends negative replies") \
  X(28, HR_PUSHBACKS, pushbacks, hedging, "answers that asked for later hedges, or for none") \
  X(29, HR_EXTRA_SENDS, extra_sends, hedging, \
    "datagrams beyond the first of each request: hedges, second copies around a suspect backend or to an idle one, probes, handovers. " \
    "The whole extra load: divide by `hedgerow_requests_total`") \
  X(30, HR_REFUSALS, refusals, packets, "TCP resets and port unreachables that answered for a VIP's ports without a service") \
  X(31, HR_SELF_TESTS, self_tests, packets, \
    "datagrams by which the daemon tests its own way, as the splitter saw them; no requests") \
  X(32, HR_SELF_TESTS_BACK, self_tests_back, packets, \
    "of those, as the reply program saw them at an uplink. Where they fall behind, something on the uplink ends packets") \
  X(33, HR_FLOWS, flows, packets, "profile `flow`: flows that began") \
  X(34, HR_FLOWS_MOVED, flows_moved, packets, "profile `flow`: flows that went on with another backend, because theirs was down or removed") \
  X(35, HR_SEGMENTED, segmented, packets, \
    "packets of several datagrams (UDP_SEGMENT, UDP GRO) that were made single ones, so that each is judged for itself") \
  X(36, HR_IDLE_COPIES, idle_copies, hedging, \
    "second copies that left with the first, because both backends were idle (`idle_copies`). Paid by answers, not from the budget") \
  X(37, HR_WOULD_COPY, would_copy, hedging, "dry runs: second copies that would have left with the first") \
  X(38, HR_UNROUTED, unrouted, outcome, \
    "the host has no route to any backend: an ICMP \"unreachable\" told the client so at once, or at more than 1,000 a second nothing did")
/* clang-format on */
