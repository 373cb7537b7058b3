// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "bpf/tests/test_links.h"

#include <sched.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace hedgerow::packets {
namespace {

absl::Status MakePair(const char *name, const char *peer_name, net::LinkInfo &link, net::LinkInfo &peer) {
  auto pair = net::CreateVethPair({.name = name, .peer_name = peer_name, .instance = "packets"});
  if (!pair.ok()) return pair.status();
  link = pair->link;
  peer = pair->peer;
  return absl::OkStatus();
}

TestLinks Make() {
  TestLinks links;
  if (unshare(CLONE_NEWNET) != 0) {
    links.problem = absl::StrCat("cannot make a network namespace: ", strerror(errno));
    return links;
  }
  absl::Status status = net::SetLinkUp("lo");
  if (status.ok()) status = MakePair("hr0", "hr0p", links.proxy, links.proxy_peer);
  if (status.ok()) status = MakePair("hr0c0", "hr0c1", links.clock_out, links.clock_in);
  if (status.ok()) status = MakePair("up0", "wire0", links.uplink, links.wire);
  // What is sent round arrives with a finished checksum; what leaves by the uplink is finished as by a plain
  // device.
  if (status.ok()) status = net::SetTxChecksumOffload("hr0c0", false);
  if (status.ok()) status = net::SetTxChecksumOffload("up0", false);
  if (!status.ok()) links.problem = status.ToString();
  if (status.ok() && (links.clock_sniffer = Sniffer::Open(links.clock_in.ifindex)) == nullptr)
    links.problem = absl::StrCat("cannot open a packet socket: ", strerror(errno));
  return links;
}

}  // namespace

const TestLinks &TestLinks::Get() {
  static const TestLinks *links = new TestLinks(Make());
  return *links;
}

}  // namespace hedgerow::packets
