// SPDX-License-Identifier: Apache-2.0
//
// One way to attach a loaded TC program to an interface, whatever the kernel offers: a TCX link, or a clsact
// filter. The daemon attaches the splitter, the reply program and the clock's program through it, releases them
// to outlive the daemon, and adopts them again at its next start.
//
// Acts in the network namespace of the calling thread. An Attachment belongs to one thread at a time.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/tc/clsact.h"
#include "net/tc/tcx.h"

namespace hedgerow::net {

enum class Mechanism { kAuto, kTcx, kClsact };

struct AttachSpec {
  int ifindex = 0;
  Direction direction = Direction::kIngress;
  Order order = Order::kLast;
  Mechanism mechanism = Mechanism::kAuto;  // kAuto: TCX where the kernel has it
  std::string instance{};
  std::string role{};  // "splitter", "reply", ...: with the interface it names the pin, and the filter
  // A folder on a bpffs (bpffs.h). "" attaches unpinned: a TCX link then ends with the process, and Release
  // fails.
  std::string pin_dir{};
};

class Attachment {
 public:
  // AlreadyExists: this role of this instance is attached there already, by a second daemon or by a crashed
  // daemon (`hedgerow clean`). Unimplemented: kTcx on a kernel without it. FailedPrecondition: an `ingress`
  // qdisc excludes clsact.
  static absl::StatusOr<Attachment> Attach(const AttachSpec& spec, int program_fd);
  // Finds what an earlier process attached and released. NotFound: nothing (left) there.
  static absl::StatusOr<Attachment> Adopt(const AttachSpec& spec);

  Attachment(Attachment&& other) noexcept;
  Attachment& operator=(Attachment&& other) noexcept;
  // Detaches, unless released. A failure cannot be reported from here: call Detach where it matters.
  ~Attachment();

  // Puts another program in this one's place without a gap.
  absl::Status Replace(int program_fd);
  // Puts it before all programs that are on the hook now. For an instant it is not on the hook. FailedPrecondition: a
  // filter, whose place is its priority.
  absl::Status MoveFirst(int program_fd);
  // The kernel's number of the program that is attached; 0: none is.
  absl::StatusOr<uint32_t> ProgramId() const;
  // Takes the program off and removes the pin. Removes the clsact qdisc if we made it and no filter is left on
  // it. Idempotent.
  absl::Status Detach();
  // Leaves the program attached when this object ends. FailedPrecondition for an unpinned TCX link.
  absl::Status Release();

  // A TCX link whose interface is gone is attached to nothing, also when another interface has got its number since.
  // Always true of a filter.
  bool IsLive() const;
  // Puts the pin back, or the marker of a qdisc that we made, where it was removed from outside. True: it was.
  absl::StatusOr<bool> RestorePin() const;
  Mechanism mechanism() const { return link_ ? Mechanism::kTcx : Mechanism::kClsact; }
  const AttachSpec& spec() const { return spec_; }
  std::string ToString() const;  // "tcx ingress of interface number 4 (reply)"

 private:
  explicit Attachment(AttachSpec spec) : spec_(std::move(spec)) {}
  static absl::StatusOr<Attachment> AttachTcx(const AttachSpec& spec, int program_fd);
  static absl::StatusOr<Attachment> AttachClsact(const AttachSpec& spec, int program_fd);
  absl::Status DetachClsact();

  AttachSpec spec_;
  std::optional<TcxLink> link_;  // empty: clsact
  ClsactFilter filter_;
  bool made_clsact_ = false;  // by this object; for an adopted one the marker in pin_dir tells
  bool live_ = false;         // attached and not released
};

// How our filters and pins are named and found again; clean uses these.
std::string FilterNamePrefix(const std::string& instance);  // "hedgerow:INSTANCE:"
std::string PinPath(const AttachSpec& spec);
// An empty folder beside the pins that says "we made the clsact qdisc of this interface". A folder, because a
// bpffs holds nothing else and lives exactly as long as the pins do.
std::string ClsactMarkerPath(const std::string& pin_dir, int ifindex);
// The interface number of a marker's file name; empty optional for other names.
std::optional<int> ClsactMarkerIfindex(const std::string& file_name);

}  // namespace hedgerow::net
