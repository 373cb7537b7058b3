// SPDX-License-Identifier: Apache-2.0
//
// TCX links (kernel 6.6 and later): TC programs attached in an explicit order, several owners side by side,
// each held by a link that vanishes with its last descriptor or pin. A thin wrapper of bpf(2) with constants of
// our own, because Debian 12's libbpf (1.1) and headers (6.1) know no TCX. Used by tc_attach, clean and doctor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "net/unique_fd.h"

namespace hedgerow::net {

enum class Direction { kIngress, kEgress };
enum class Order { kFirst, kLast };  // among the programs of one hook at the moment of attaching

absl::string_view ToString(Direction direction);

// Whether this kernel offers TCX, found by asking it. PermissionDenied without CAP_NET_ADMIN.
absl::StatusOr<bool> TcxSupported();

struct TcxLinkInfo {
  uint32_t link_id = 0;
  uint32_t program_id = 0;
  int ifindex = 0;  // 0: the interface is gone
  Direction direction = Direction::kIngress;
};

class TcxLink {
 public:
  // AlreadyExists: this very program is on the hook already.
  static absl::StatusOr<TcxLink> Attach(int program_fd, int ifindex, Direction direction, Order order);
  // NotFound: no such pin. FailedPrecondition: the pin is no TCX link.
  static absl::StatusOr<TcxLink> OpenPinned(const std::string& path);

  absl::Status Pin(const std::string& path) const;
  // Replaces the program atomically: no packet passes between the old one and the new one.
  absl::Status Update(int program_fd) const;
  // Takes the program off the hook; pins and descriptors stay valid but empty. OK when it was detached already.
  absl::Status Detach() const;
  absl::StatusOr<TcxLinkInfo> Info() const;
  int fd() const { return fd_.get(); }

 private:
  explicit TcxLink(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

struct TcxProgram {
  uint32_t program_id = 0;
  uint32_t link_id = 0;  // 0: attached without a link
  std::string name{};    // "" without CAP_SYS_ADMIN, which the kernel wants for a look-up by number
};
// The numbers of the programs that are attached to a hook, in the order the kernel runs them.
absl::StatusOr<std::vector<uint32_t>> ListTcxNumbers(int ifindex, Direction direction);
// The same with links and names.
absl::StatusOr<std::vector<TcxProgram>> ListTcx(int ifindex, Direction direction);

// The name a program was loaded with; "" when it is gone or may not be looked at.
std::string ProgramName(uint32_t program_id);

}  // namespace hedgerow::net
