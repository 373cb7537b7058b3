// SPDX-License-Identifier: Apache-2.0
#include "proxy/cli/capture_file.h"

#include <fcntl.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "config/address.h"
#include "config/scalar.h"
#include "net/ip_address.h"
#include "net/unique_fd.h"
#include "operate/hex.h"
#include "operate/version.h"
#include "proxy/cli/trace_text.h"

namespace hedgerow::cli {
namespace {

// Blocks and options are in the writer's byte order, which the section header names; both supported architectures are
// little-endian.
static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kSectionHeader = 0x0A0D0D0A, kInterface = 1, kEnhancedPacket = 6;
constexpr uint32_t kByteOrder = 0x1A2B3C4D;
constexpr uint16_t kComment = 1, kUserApplication = 4, kName = 2, kDescription = 3, kResolution = 9, kFlags = 2;
constexpr uint16_t kLinkTypeRaw = 101;  // an IP packet without a link's header: LINKTYPE_RAW
constexpr uint32_t kSnapLength = 262'144;
constexpr uint32_t kInbound = 1, kOutbound = 2;
constexpr size_t kUdpHeader = 8;
constexpr uint8_t kTtl = 64;
constexpr uint8_t kMarkProtocol = 253;  // for experimentation and testing, RFC 3692

template <typename T>
std::string Native(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string Wire16(size_t value) { return {static_cast<char>(value >> 8 & 0xff), static_cast<char>(value & 0xff)}; }

void Pad(std::string& bytes) { bytes.resize((bytes.size() + 3) / 4 * 4, '\0'); }

std::string Option(uint16_t code, const std::string& value) {
  std::string option = absl::StrCat(Native(code), Native(static_cast<uint16_t>(value.size())), value);
  Pad(option);
  return option;
}

std::string Block(uint32_t type, std::string body) {
  body += Native(uint32_t{0});  // opt_endofopt
  const std::string bytes = Native(static_cast<uint32_t>(body.size() + 12));
  return absl::StrCat(Native(type), bytes, body, bytes);
}

struct Place {
  net::IpAddress address;
  uint32_t port = 0;
};

std::string IpHeader(const Place& from, const Place& to, size_t bytes, uint8_t protocol) {
  const auto wire = [](const net::IpAddress& address) {
    return std::string(reinterpret_cast<const char*>(address.wire().data()), address.wire().size());
  };
  if (!from.address.is_v4()) {
    return absl::StrCat(std::string("\x60\0\0\0", 4), Wire16(bytes - 40),
                        std::string{static_cast<char>(protocol), static_cast<char>(kTtl)}, wire(from.address),
                        wire(to.address));
  }
  std::string header = absl::StrCat(std::string("\x45\0", 2), Wire16(bytes), std::string("\0\0\x40\0", 4),
                                    std::string{static_cast<char>(kTtl), static_cast<char>(protocol)},
                                    std::string(2, '\0'), wire(from.address), wire(to.address));
  uint32_t sum = 0;
  for (size_t i = 0; i < header.size(); i += 2)
    sum += static_cast<uint8_t>(header[i]) << 8 | static_cast<uint8_t>(header[i + 1]);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return header.replace(10, 2, Wire16(~sum & 0xffff));
}

struct Frame {
  std::string bytes;
  uint32_t original_bytes = 0;
  uint32_t direction = 0;
};

// `packet_bytes`: from the IP header on.
Frame MakeFrame(const Place& from, const Place& to, const std::string& payload, size_t packet_bytes,
                uint32_t direction) {
  const size_t headers = (from.address.is_v4() ? 20 : 40) + kUdpHeader;
  const size_t bytes = std::min<size_t>(std::max(packet_bytes, headers + payload.size()), UINT16_MAX);
  const size_t udp_bytes = bytes - headers + kUdpHeader;
  return {.bytes = absl::StrCat(IpHeader(from, to, bytes, IPPROTO_UDP), Wire16(from.port), Wire16(to.port),
                                Wire16(udp_bytes), Wire16(0), payload),
          .original_bytes = static_cast<uint32_t>(bytes),
          .direction = direction};
}

// Where no packet moves: a header alone, of a protocol number that no traffic has.
Frame MakeMark(const net::IpAddress& client, const net::IpAddress& vip) {
  const std::string header = IpHeader({.address = client}, {.address = vip}, client.is_v4() ? 20 : 40, kMarkProtocol);
  return {.bytes = header, .original_bytes = static_cast<uint32_t>(header.size())};
}

bool IsToBackend(const std::string& kind) {
  return kind == "split" || kind == "passed" || kind == "copy" || kind == "hedge" || kind == "release" ||
         kind == "handover";
}

bool IsFromBackend(const v1::TraceEvent& event) {
  // The ICMP error's sender is not known: a router, or the backend.
  return !event.icmp() && (event.kind() == "answer" || event.kind() == "nack" || event.kind() == "dropped");
}

Frame FrameOf(const v1::TraceEvent& event, const v1::ServiceStatus* service) {
  const bool out = IsToBackend(event.kind());
  const net::IpAddress client = net::IpAddress::Parse(event.client()).value_or(net::IpAddress());
  if (service == nullptr) return MakeMark(client, client);
  const Frame mark = MakeMark(client, net::IpAddress::Parse(service->vip()).value_or(client));
  const auto backend = std::find_if(service->backends().begin(), service->backends().end(),
                                    [&](const v1::BackendStatus& each) { return each.name() == event.backend(); });
  if ((!out && !IsFromBackend(event)) || backend == service->backends().end()) return mark;
  const auto address = net::IpAddress::Parse(backend->address());
  if (!address.ok() || address->is_v4() != client.is_v4()) return mark;
  const Place near = {client, event.client_port()}, far = {*address, backend->port()};
  // A reply's own length is not traced: the request's stands there, or readers would take a reply of 2 bytes for
  // invalid.
  return MakeFrame(out ? near : far, out ? far : near, operate::BytesOfHex(event.key()), event.bytes(),
                   out ? kOutbound : kInbound);
}

// "dns 10.99.0.53:53: hedge to b; 10.1ms after the splitter saw it; client 10.77.0.1:40000, key 2a01, request 5.1,
// event 3"
std::string CommentOf(const v1::TraceEvent& event, const v1::ServiceStatus* service) {
  return absl::StrCat(
      event.service(),
      service == nullptr ? "" : absl::StrCat(" ", config::FormatEndpoint(service->vip(), service->port())), ": ",
      StepText(event), "; ",
      event.since_ns() == 0 ? ""
                            : absl::StrCat(config::RoundedDurationNs(event.since_ns()), " after the splitter saw it; "),
      "client ", config::FormatEndpoint(event.client(), event.client_port()), ", key ", event.key(),
      event.request().empty() ? "" : absl::StrCat(", request ", event.request(), ", event ", event.number()));
}

}  // namespace

CaptureFile::CaptureFile(std::ostream& out, const v1::Status& status) : out_(out) {
  for (const v1::ServiceStatus& service : status.services()) services_[service.name()] = &service;
  out_ << Block(kSectionHeader,
                absl::StrCat(Native(kByteOrder), Native(uint16_t{1}), Native(uint16_t{0}), Native(int64_t{-1}),
                             Option(kUserApplication, absl::StrCat("hedgerow ", operate::kVersion))));
  out_ << Block(
      kInterface,
      absl::StrCat(Native(kLinkTypeRaw), Native(uint16_t{0}), Native(kSnapLength), Option(kName, status.interface()),
                   Option(kDescription, "hedgerow trace: made of its events; no payload but the key's bytes"),
                   Option(kResolution, std::string(1, '\x09'))));
}

void CaptureFile::Add(const v1::TraceEvent& event, int64_t unix_ns) {
  const auto found = services_.find(event.service());
  const v1::ServiceStatus* service = found == services_.end() ? nullptr : found->second;
  Frame frame = FrameOf(event, service);
  const auto captured = static_cast<uint32_t>(frame.bytes.size());
  Pad(frame.bytes);
  const auto time = static_cast<uint64_t>(unix_ns);
  out_ << Block(kEnhancedPacket,
                absl::StrCat(Native(uint32_t{0}), Native(static_cast<uint32_t>(time >> 32)),
                             Native(static_cast<uint32_t>(time)), Native(captured), Native(frame.original_bytes),
                             frame.bytes, Option(kComment, CommentOf(event, service)),
                             frame.direction == 0 ? "" : Option(kFlags, Native(frame.direction))));
  ++frames_;
}

absl::Status CreateCaptureFile(const std::string& path, std::ofstream& out) {
  const net::UniqueFd made(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!made.valid() && errno == EEXIST) return absl::AlreadyExistsError(absl::StrCat(path, " exists: name a new file"));
  if (!made.valid()) return absl::UnknownError(absl::StrCat("cannot write ", path, ": ", strerror(errno)));
  out.open(absl::StrCat("/proc/self/fd/", made.get()), std::ios::binary | std::ios::out);
  return out ? absl::OkStatus() : absl::UnknownError(absl::StrCat("cannot write ", path));
}

}  // namespace hedgerow::cli
