// SPDX-License-Identifier: Apache-2.0
//
// Trace events as a capture file, read back block by block as the format's specification says.
#include "proxy/cli/capture_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kSeen = 1'700'000'000'123'456'789;

struct ReadFrame {
  int64_t time_ns = 0;
  uint32_t original = 0, flags = 0;
  std::string bytes, comment;
};

template <typename T>
T At(const std::string& bytes, size_t at) {
  T value{};
  EXPECT_LE(at + sizeof(T), bytes.size());
  if (at + sizeof(T) <= bytes.size()) memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// The frames, with everything around them checked.
std::vector<ReadFrame> ReadBack(const std::string& file) {
  std::vector<ReadFrame> frames;
  int number = 0;
  for (size_t at = 0; at < file.size(); ++number) {
    const auto type = At<uint32_t>(file, at), size = At<uint32_t>(file, at + 4);
    EXPECT_EQ(size % 4, 0u);
    EXPECT_EQ(At<uint32_t>(file, at + size - 4), size);
    if (::testing::Test::HasFailure()) return frames;
    if (number == 0) {
      EXPECT_EQ(type, 0x0A0D0D0Au);
      EXPECT_EQ(At<uint32_t>(file, at + 8), 0x1A2B3C4Du);
    } else if (number == 1) {
      EXPECT_EQ(type, 1u);
      EXPECT_EQ(At<uint16_t>(file, at + 8), 101);
    } else {
      EXPECT_EQ(type, 6u);
      ReadFrame frame;
      frame.time_ns = static_cast<int64_t>(uint64_t{At<uint32_t>(file, at + 12)} << 32 | At<uint32_t>(file, at + 16));
      const auto captured = At<uint32_t>(file, at + 20);
      frame.original = At<uint32_t>(file, at + 24);
      frame.bytes = file.substr(at + 28, captured);
      for (size_t option = at + 28 + (captured + 3) / 4 * 4; At<uint16_t>(file, option) != 0;) {
        const auto code = At<uint16_t>(file, option), bytes = At<uint16_t>(file, option + 2);
        if (code == 1) frame.comment = file.substr(option + 4, bytes);
        if (code == 2) frame.flags = At<uint32_t>(file, option + 4);
        option += 4 + (bytes + 3) / 4 * 4;
      }
      frames.push_back(frame);
    }
    at += size;
  }
  return frames;
}

v1::Status Status(bool six) {
  v1::Status status;
  status.set_interface("hr0");
  v1::ServiceStatus& service = *status.add_services();
  service.set_name("dns");
  service.set_vip(six ? "fd99::53" : "10.99.0.53");
  service.set_port(53);
  for (const char* name : {"a", "b"}) {
    v1::BackendStatus& backend = *service.add_backends();
    backend.set_name(name);
    backend.set_address(absl::StrCat(six ? "fd77::" : "10.77.0.1", name[0] == 'a' ? "1" : "2"));
    backend.set_port(5353);
  }
  return status;
}

v1::TraceEvent Event(const std::string& kind, const std::string& backend, bool six = false) {
  v1::TraceEvent event;
  event.set_kind(kind);
  event.set_backend(backend);
  event.set_service("dns");
  event.set_client(six ? "fd77::1" : "10.77.0.1");
  event.set_client_port(40000);
  event.set_key("2a01");
  event.set_request("5.1");
  event.set_state("answered");
  event.set_bytes(60);
  event.set_since_ns(10'100'000);
  event.set_number(3);
  return event;
}

ReadFrame Only(const v1::TraceEvent& event, bool six = false) {
  std::ostringstream out;
  const v1::Status status = Status(six);
  CaptureFile file(out, status);
  file.Add(event, kSeen);
  EXPECT_EQ(file.frames(), 1u);
  const std::vector<ReadFrame> frames = ReadBack(out.str());
  EXPECT_EQ(frames.size(), 1u);
  return frames.empty() ? ReadFrame{} : frames[0];
}

TEST(CaptureFile, AHedgeIsAPacketFromTheClientToTheBackend) {
  const ReadFrame frame = Only(Event("hedge", "b"));
  EXPECT_EQ(absl::BytesToHexString(frame.bytes),
            "4500003c00004000"
            "4011"
            "260b"
            "0a4d0001"
            "0a4d000c"
            "9c40"
            "14e9"
            "0028"
            "0000"
            "2a01");
  EXPECT_EQ(frame.original, 60u);
  EXPECT_EQ(frame.flags, 2u);
  EXPECT_EQ(frame.time_ns, kSeen);
  EXPECT_EQ(
      frame.comment,
      "dns 10.99.0.53:53: hedge to b; 10.1ms after the splitter saw it; client 10.77.0.1:40000, key 2a01, request 5.1, event 3");
}

TEST(CaptureFile, AnAnswerIsOneTheOtherWayWithTheRequestsLength) {
  const ReadFrame frame = Only(Event("answer", "a"));
  EXPECT_EQ(absl::BytesToHexString(frame.bytes.substr(12)),
            "0a4d000b"
            "0a4d0001"
            "14e9"
            "9c40"
            "0028"
            "0000"
            "2a01");
  EXPECT_EQ(frame.original, 60u);
  EXPECT_EQ(frame.flags, 1u);
}

TEST(CaptureFile, OfIPv6HasAnIPv6Header) {
  const ReadFrame frame = Only(Event("split", "a", true), true);
  EXPECT_EQ(absl::BytesToHexString(frame.bytes),
            "6000000000141140"
            "fd770000000000000000000000000001"
            "fd770000000000000000000000000001"
            "9c40"
            "14e9"
            "0014"
            "0000"
            "2a01");
  EXPECT_EQ(frame.original, 60u);
}

TEST(CaptureFile, AnEventWithoutAPacketIsAMarkWithItsComment) {
  const std::string kMark =
      "4500001400004000"
      "40fd"
      "2508"
      "0a4d0001"
      "0a630035";
  for (const char* kind : {"due", "no_hedge", "expired"}) {
    const ReadFrame frame = Only(Event(kind, ""));
    EXPECT_EQ(absl::BytesToHexString(frame.bytes), kMark) << kind;
    EXPECT_EQ(frame.original, 20u) << kind;
    EXPECT_EQ(frame.flags, 0u) << kind;
    EXPECT_THAT(frame.comment, StartsWith("dns 10.99.0.53:53: ")) << kind;
  }
  v1::TraceEvent icmp = Event("nack", "a");
  icmp.set_icmp(true);
  EXPECT_EQ(absl::BytesToHexString(Only(icmp).bytes), kMark);
  EXPECT_THAT(Only(icmp).comment, HasSubstr("ICMP unreachable about a, dropped"));
  EXPECT_EQ(absl::BytesToHexString(Only(Event("hedge", "gone")).bytes), kMark);  // a reload took it away meanwhile
  v1::TraceEvent other = Event("hedge", "b");
  other.set_service("new");
  EXPECT_EQ(absl::BytesToHexString(Only(other).bytes.substr(12)),
            "0a4d0001"
            "0a4d0001");
  EXPECT_EQ(absl::BytesToHexString(Only(Event("due", "", true), true).bytes),
            "600000000000fd40"
            "fd770000000000000000000000000001"
            "fd990000000000000000000000000053");
}

TEST(CaptureFile, IsNewAndItsOwnersAlone) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/hedgerow-capture-", getpid(), ".pcapng");
  std::ofstream first, second;
  ASSERT_TRUE(CreateCaptureFile(path, first).ok());
  struct stat found {};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_THAT(std::string(CreateCaptureFile(path, second).message()), HasSubstr("exists: name a new file"));
  unlink(path.c_str());
  EXPECT_THAT(std::string(CreateCaptureFile("/nowhere/x.pcapng", second).message()), HasSubstr("No such file"));
}

}  // namespace
}  // namespace hedgerow::cli
