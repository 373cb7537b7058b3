// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "bpf/tests/cluster_messages.h"

#include <arpa/inet.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hedgerow::packets {
namespace {

// Both architectures that are supported are little-endian, as the format is.
template <typename T>
void Put(Bytes &bytes, T value) {
  const auto *raw = reinterpret_cast<const uint8_t *>(&value);
  bytes.insert(bytes.end(), raw, raw + sizeof(value));
}

}  // namespace

Bytes HkvRequest(uint8_t kind, uint64_t client_id, uint64_t seq, const Bytes &body) {
  Bytes bytes = {0x48, 2, kind, 0};
  Put(bytes, uint32_t{1'000'000});  // patience
  Put(bytes, client_id);
  Put(bytes, seq);
  Put(bytes, uint64_t{0});  // lowest unanswered
  Put(bytes, uint64_t{0});  // token
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

Bytes HkvAnswer(const Bytes &request, uint8_t status, uint32_t hint) {
  Bytes bytes = {0x48, 2, static_cast<uint8_t>(request.at(2) | 0x80), status};
  Put(bytes, hint);
  bytes.insert(bytes.end(), request.begin() + 8, request.begin() + 24);
  Put(bytes, uint64_t{0});  // flags and what is reserved
  return bytes;
}

Bytes HkvCorrelation(uint64_t client_id, uint64_t seq) {
  Bytes bytes;
  Put(bytes, client_id);
  Put(bytes, seq);
  return bytes;
}

hr_announcement Leading(uint64_t cluster_id, const char *address, uint16_t port, uint64_t term, uint64_t sequence) {
  hr_announcement announcement{};
  announcement.magic = HR_ANNOUNCEMENT_MAGIC;
  announcement.version = HR_ANNOUNCEMENT_VERSION;
  announcement.state = HR_ANNOUNCEMENT_LEADING;
  announcement.bytes = sizeof(announcement);
  announcement.cluster_id = cluster_id;
  announcement.term = term;
  announcement.sequence = sequence;
  in_addr ipv4{};
  if (inet_pton(AF_INET, address, &ipv4) == 1) {
    announcement.leader_address.words[2] = htonl(0xffff);
    announcement.leader_address.words[3] = ipv4.s_addr;
  } else if (inet_pton(AF_INET6, address, announcement.leader_address.bytes) != 1) {
    fprintf(stderr, "packet test: \"%s\" is no address\n", address);
    abort();
  }
  announcement.leader_port_be = htons(port);
  return announcement;
}

Bytes Seal(hr_announcement announcement, const hr_siphash_key &key) {
  announcement.tag = hr_siphash_sealed(&key, &announcement, sizeof(announcement));
  Bytes bytes(sizeof(announcement));
  memcpy(bytes.data(), &announcement, sizeof(announcement));
  return bytes;
}

}  // namespace hedgerow::packets
