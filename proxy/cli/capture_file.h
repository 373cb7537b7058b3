// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow trace --pcap`: trace events as a capture file, which Wireshark and tcpdump read (pcapng,
// draft-ietf-opsawg-pcapng). An event has no packet, so each frame is made of what the event has: addresses and ports,
// the key's bytes as the payload's beginning, and the length where it is known. The frame's comment says the event. An
// event at which no packet moves is a mark: an IP header of protocol 253 alone.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "proxy/api/admin.pb.h"
#include "proxy/api/trace.pb.h"

namespace hedgerow::cli {

class CaptureFile {
 public:
  // `status` has the addresses of backends. Both must outlive it, `out` is binary.
  CaptureFile(std::ostream& out, const v1::Status& status);

  void Add(const v1::TraceEvent& event, int64_t unix_ns);
  uint64_t frames() const { return frames_; }

 private:
  std::ostream& out_;
  std::map<std::string, const v1::ServiceStatus*> services_;
  uint64_t frames_ = 0;
};

// A new file, for its owner alone: it has clients' addresses. An error where it exists.
absl::Status CreateCaptureFile(const std::string& path, std::ofstream& out);

}  // namespace hedgerow::cli
