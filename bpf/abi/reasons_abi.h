/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The one list of reasons why a packet was not hedged, dropped or left alone. enum hr_reason, the names in `status`,
 * traces and metrics, docs/reasons.md and the sum that explains passed_through are made of it. Adding a reason: a line
 * here, and hr_reason() where it happens (docs/development.md). Numbers are stable and never reused: 17 was reloading,
 * 28 delay_line_full.
 *
 * X(number, enumerator, name, family, when, remedy)
 *
 * The family tells what became of the packet (docs/reasons.md has a section for each):
 *   forwarded   sent on once, untracked; their sum is HR_PASSED_THROUGH
 *   not_hedged  parked and due, but no copy was sent now
 *   dropped     ended here
 *   untouched   left to the kernel as it came
 *   unjudged    given to the client without a judgement
 *   bound       a packet went on as usual, but a table did not keep what it should
 */
#pragma once

/* clang-format off */
#define HR_REASONS(X) \
  X(1, HR_REASON_BYPASS, bypass, forwarded, "hedging is switched off for the service", \
    "`hedgerow bypass SERVICE off`") \
  X(2, HR_REASON_NOT_HEDGED, not_hedged, forwarded, "`attempts` is 1, or the service has one backend", \
    "nothing, or add a backend") \
  X(3, HR_REASON_FRAGMENT, fragment, forwarded, "the request is fragmented", \
    "keep requests below the path's MTU") \
  X(4, HR_REASON_GSO, gso, forwarded, "several datagrams in one packet (UDP segmentation offload), which could not be made single ones", \
    "look whether the clock's links are up") \
  X(5, HR_REASON_TOO_BIG, too_big, forwarded, "the IP packet is longer than the 1,500 bytes of a parked copy", \
    "keep requests smaller") \
  X(6, HR_REASON_UNKNOWN_OPERATION, unknown_operation, forwarded, \
    "no request of the profile, or an operation that must not be sent twice", \
    "nothing for such operations. If it counts what should be hedged, a match of the profile is wrong ([profiles.md](profiles.md))") \
  X(7, HR_REASON_RETRANSMISSION, retransmission, forwarded, "the client sent a pending request once more", \
    "nothing; many of them mean that the client's timeout is shorter than the answers take") \
  X(8, HR_REASON_POOL_FULL, pool_full, forwarded, "every parked copy is in use", "raise `limits.parked`") \
  X(9, HR_REASON_REQUESTS_FULL, requests_full, forwarded, "every place for a request is in use", \
    "raise `limits.requests`, or lower `retention`") \
  X(10, HR_REASON_KEY_BUSY, key_busy, forwarded, \
    "the key's former request still waits, or was just being removed; or two packets raced for one key", \
    "nothing, unless there are many: then clients reuse their correlation bytes too fast") \
  X(11, HR_REASON_IP_OPTIONS, ip_options, forwarded, "the request has IPv4 options or IPv6 extension headers", \
    "send without them") \
  X(12, HR_REASON_WHEEL_CONTENDED, wheel_contended, forwarded, "other CPUs won every try to enter the timer wheel", \
    "nothing; steadily growing: spread clients over less CPUs and report it") \
  X(13, HR_REASON_COPY_FAILED, copy_failed, forwarded, "the kernel could not read the packet's bytes", "report it") \
  X(14, HR_REASON_SCOREBOARD_FULL, scoreboard_full, forwarded, "the 8 places that the key's hash allows are taken", \
    "raise `limits.requests`: it happens 2 in 10,000 times when all are in use") \
  X(15, HR_REASON_TRAILING_BYTES, trailing_bytes, forwarded, "the IP packet is longer than the UDP datagram in it", \
    "mend the client") \
  X(16, HR_REASON_NO_DAEMON, no_daemon, forwarded, "no daemon has lived for `unattended_timeout`", "start `hedgerowd`") \
  X(20, HR_REASON_ONE_WAY, one_way, forwarded, \
    "a request that nothing answers, as memcached's `noreply` and all of a profile with `one_way`: a copy would only be a second request", \
    "nothing") \
  X(21, HR_REASON_CLIENT_SHARE, client_share, forwarded, \
    "half of the requests or parked copies is in use, and the client holds more than a 64th of all", \
    "look at what that client sends; then perhaps raise `limits.requests` and `limits.parked`") \
  X(22, HR_REASON_SERVICE_SHARE, service_share, forwarded, \
    "three quarters of the requests or parked copies are in use, and the service holds its share of the rest", \
    "look at what floods the service; then perhaps raise `limits.requests` and `limits.parked`") \
  X(23, HR_REASON_FLOW, flow, forwarded, "profile `flow`: it goes to the backend that its client's flow is with", "nothing") \
  X(24, HR_REASON_NO_BUDGET, no_budget, not_hedged, "the hedging budget is spent, or less than half is left and the client has used more than it earned", \
    "look for the slow backend; then perhaps raise `budget`") \
  X(25, HR_REASON_NO_TARGET, no_target, not_hedged, "every backend has the request already, or is down", \
    "nothing, or add a backend") \
  X(26, HR_REASON_HEDGE_FAILED, hedge_failed, not_hedged, "the kernel refused to build or to send the copy", \
    "look at the route to the backend") \
  X(27, HR_REASON_RELEASE_FAILED, release_failed, not_hedged, \
    "a negative reply could not be turned into the next attempt; the clock sends that attempt instead", \
    "nothing; steadily growing: look at the route to the backend") \
  X(29, HR_REASON_PUSHBACK, pushback, not_hedged, "a backend asked for later hedges, or for none", \
    "the backend is overloaded: look there") \
  X(30, HR_REASON_DRAINED, drained, not_hedged, "only drained backends were left", \
    "`hedgerow undrain` one, or add a backend") \
  X(31, HR_REASON_NO_RETRY_BUDGET, no_retry_budget, not_hedged, \
    "a negative reply went to the client: more requests were refused than answered lately", \
    "look at why the backends refuse") \
  X(32, HR_REASON_LOSER, loser, dropped, "another backend has answered first", "nothing: hedging at work") \
  X(33, HR_REASON_NACK, nack, dropped, "a negative reply while an attempt remained: that attempt was made at once", \
    "look at the backend that sends them") \
  X(34, HR_REASON_STALE, stale, dropped, "an answer to an older request with the same key, or to another question", \
    "nothing: the client has given that request up; many of them: somebody guesses answers") \
  X(35, HR_REASON_LOSER_FRAGMENT, loser_fragment, dropped, "a later fragment of a dropped datagram", "nothing") \
  X(36, HR_REASON_SINK, sink, dropped, \
    "sent to a VIP, but to no service on it, and not answered: neither TCP nor UDP, a fragment, or more than 1,000 a second", \
    "mend the client's port, or add the service; `hedgerow_refusals_total` counts what was answered") \
  X(37, HR_REASON_CLOCK_STALE, clock_stale, dropped, \
    "a lap of an older epoch, or a copy whose request is gone", "nothing: the clock was started anew, or the request has ended") \
  X(38, HR_REASON_SEND_FAILED, send_failed, dropped, "a rewritten packet could not be sent on", \
    "look at the routes to the backend and to the client") \
  X(39, HR_REASON_LATE, late, dropped, "an answer to no request that waits or is remembered: a loser after its retention", \
    "nothing, or raise `retention`") \
  X(40, HR_REASON_FORGED_VIP, forged_vip, dropped, \
    "a packet came from outside with a VIP as its source", "find out what sends it: VIPs answer on this host only") \
  X(41, HR_REASON_BAD_CHECKSUM, bad_checksum, dropped, \
    "an answer, a TCP handshake's answer or an ICMP error whose checksum is wrong: it was damaged on its way", "look at cables, switches and offloads on the way") \
  X(42, HR_REASON_FOREIGN_ON_LINK, foreign_on_link, dropped, \
    "a packet that the proxy did not send, on a link of its own: the clock's, or the far end of the proxy interface", \
    "find out what sends there: a process that binds to the device, or a route") \
  X(43, HR_REASON_NOT_A_CLIENT, not_a_client, dropped, \
    "a packet that this host would have forwarded to a VIP, from none of the service's `clients` and not under an IPv4 address of this host", \
    "list the network that the packets have when they leave this host ([config.md](config.md#who-may-use-a-vip)), or find out what sends them") \
  X(44, HR_REASON_HEDGE_TEST, hedge_test, dropped, \
    "the first datagram of a request by which `hedgerow check` tests the hedge", "nothing") \
  X(45, HR_REASON_NO_COPY_BUDGET, no_copy_budget, not_hedged, \
    "both backends were idle, and yet no copy left with the first: 1,024 of them, or with half of that a client's 64, are not paid by answers yet; " \
    "or a quarter of `limits.requests` is in use", \
    "raise `limits.requests` if a quarter of it is less than the requests of a `retention`; else look at why backends do not answer") \
  X(46, HR_REASON_FAILOVERS_OWED, failovers_owed, not_hedged, \
    "a copy around a backend that is not healthy had to be paid for like a hedge: 256 of those, or with half of that a client's 16, were of no " \
    "use, since they too were slow and that backend had answered others meanwhile, and are not paid by answers yet", \
    "the backend is slow rather than gone, perhaps overloaded: look there") \
  X(47, HR_REASON_NO_ROUTE, no_route, dropped, \
    "the host has no route to any backend, or none to the one that a TCP connection is with: an ICMP \"unreachable\" tells the client, or a reset where it opens a connection", \
    "look at the problem `no_route` in `hedgerow status`") \
  X(48, HR_REASON_NO_FLOW, no_flow, untouched, \
    "sent by a backend, but to no client that asked through the proxy", \
    "nothing; if clients miss late replies, raise `limits.flows`, with TCP `limits.connections`") \
  X(49, HR_REASON_FRAGMENT_NO_FIRST, fragment_no_first, untouched, \
    "a later fragment whose first was not seen", "raise `limits.fragments`, or look for reordering") \
  X(50, HR_REASON_MALFORMED, malformed, untouched, "the headers contradict each other, or end too early", \
    "find out what sends it") \
  X(51, HR_REASON_NOT_A_REPLY, not_a_reply, untouched, \
    "from a backend to a client of the proxy, but no reply of this profile: passed on to the client in the VIP's name", \
    "nothing; if it counts answers, `replies` of the profile is too narrow") \
  X(52, HR_REASON_MERGED, merged, unjudged, "several datagrams of a backend in one packet, which could not be made single ones", \
    "look whether the clock's links are up") \
  X(53, HR_REASON_DIRECT, direct, untouched, \
    "from a backend to a client that talks to it without the proxy as well", "nothing") \
  X(56, HR_REASON_FLOW_FAILED, flow_failed, bound, \
    "the flow was not kept: the client's replies may not be delivered", \
    "raise `limits.flows`, with TCP `limits.connections`") \
  X(57, HR_REASON_FRAGMENTS_FAILED, fragments_failed, bound, \
    "the first fragment was not kept: its later fragments are not delivered", "raise `limits.fragments`") \
  X(58, HR_REASON_CLOCK_KICK_FAILED, clock_kick_failed, bound, \
    "the clock could not be started: hedges come late, until the next request or the watchdog starts it", \
    "look at `hedgerow status` and whether the clock's links are up") \
  X(59, HR_REASON_INDEX_LOST, index_lost, bound, \
    "the kernel did not take free indices back: the table is one entry smaller", \
    "report it; a restart after `hedgerow clean` makes the table anew") \
  X(64, HR_REASON_ANNOUNCE_LENGTH, announce_length, untouched, "an announcement of another length", \
    "find out what sends to the announce port") \
  X(65, HR_REASON_ANNOUNCE_VERSION, announce_version, untouched, "an announcement of another version", \
    "upgrade nodes and proxies to the same version") \
  X(66, HR_REASON_ANNOUNCE_CLUSTER, announce_cluster, untouched, \
    "an announcement of a cluster that no service here belongs to", "compare `cluster.id`") \
  X(67, HR_REASON_ANNOUNCE_TAG, announce_tag, untouched, \
    "an announcement made with another key, or changed on its way", "compare `cluster.key`; else suspect an attack") \
  X(68, HR_REASON_ANNOUNCE_ACCEPTED, announce_accepted, dropped, \
    "an announcement newer than the known one, believed and consumed", "nothing; alert on none for seconds") \
  X(69, HR_REASON_ANNOUNCE_EPOCH, announce_epoch, dropped, \
    "an announcement of a cluster epoch that is not, or no longer, the accepted one", \
    "after a recovery of the cluster set `cluster.epoch`") \
  X(70, HR_REASON_ANNOUNCE_ENDPOINT, announce_endpoint, dropped, \
    "the announced leader is no backend of a service of that cluster", "add it to `backends`") \
  X(71, HR_REASON_ANNOUNCE_STATE, announce_state, dropped, "an announcement neither of leading nor of resigning", \
    "upgrade nodes and proxies to the same version") \
  X(72, HR_REASON_ANNOUNCE_STALE, announce_stale, dropped, \
    "an announcement not newer than the known one: overtaken, repeated or replayed", "nothing") \
  X(73, HR_REASON_ANNOUNCE_TERM, announce_term, dropped, \
    "an announcement of a term that the cluster cannot have reached since the last one", \
    "suspect that the key was stolen: change it; what is true is believed after 20 s at most")
/* clang-format on */
