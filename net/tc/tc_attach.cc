// SPDX-License-Identifier: Apache-2.0
#include "net/tc/tc_attach.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "net/fnv.h"
#include "net/netlink/netlink.h"

namespace hedgerow::net {
namespace {

constexpr absl::string_view kMarkerPrefix = "clsact-made-";
// The kernel numbers filters without a priority from 0xc000 downwards, so ours are before and behind all of
// those.
constexpr uint16_t kPriorityFirst = 1;
constexpr uint16_t kPriorityLast = 0xfff0;
// Handles: 'HR', then a hash of instance and role, so that two instances share an interface without a conflict.
constexpr uint32_t kHandleBase = 0x48520000;
constexpr uint32_t kHandleMask = 0x0000ffff;

ClsactFilter FilterOf(const AttachSpec& spec) {
  const std::string name = absl::StrCat(FilterNamePrefix(spec.instance), spec.role);
  return {.ifindex = spec.ifindex,
          .direction = spec.direction,
          .priority = spec.order == Order::kFirst ? kPriorityFirst : kPriorityLast,
          .handle = kHandleBase | (Fnv1a(name) & kHandleMask),
          .name = name,
          .kind = "bpf",
          .program_id = 0};
}

// True: made by us, and marked so when there is a folder for it. The mark is set first, so a crash in between
// leaves a mark without a qdisc, which is harmless. The other order could leave a qdisc of ours that is never
// removed.
absl::StatusOr<bool> EnsureClsact(const AttachSpec& spec) {
  const auto present = FindIngressQdisc(spec.ifindex);
  if (!present.ok()) return present.status();
  if (*present == IngressQdisc::kIngressOnly && spec.direction == Direction::kEgress) {
    return absl::FailedPreconditionError(
        absl::StrCat("interface number ", spec.ifindex,
                     " has an `ingress` qdisc, which excludes clsact and with it the egress hook"));
  }
  if (*present != IngressQdisc::kNone) return false;
  const std::string marker = spec.pin_dir.empty() ? "" : ClsactMarkerPath(spec.pin_dir, spec.ifindex);
  bool marked = false;
  if (!marker.empty()) {
    marked = mkdir(marker.c_str(), 0700) == 0;
    if (!marked && errno != EEXIST) return absl::ErrnoToStatus(errno, absl::StrCat("make ", marker));
  }
  const absl::Status status = CreateClsact(spec.ifindex);
  if (status.ok()) return true;
  if (marked) rmdir(marker.c_str());
  if (absl::IsAlreadyExists(status)) return false;  // Another process made one since we looked.
  return status;
}

absl::StatusOr<size_t> CountFilters(int ifindex, const std::string& name_prefix) {
  size_t count = 0;
  for (const Direction direction : {Direction::kIngress, Direction::kEgress}) {
    const auto filters = ListClsactFilters(ifindex, direction);
    if (!filters.ok()) return filters.status();
    for (const ClsactFilter& filter : *filters) count += filter.name.starts_with(name_prefix) ? 1 : 0;
  }
  return count;
}

absl::Status RemovePin(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("remove the pin ", path));
}

}  // namespace

std::string FilterNamePrefix(const std::string& instance) { return absl::StrCat("hedgerow:", instance, ":"); }

std::string PinPath(const AttachSpec& spec) {
  return absl::StrCat(spec.pin_dir, "/tc-", spec.role, "-", ToString(spec.direction), "-", spec.ifindex);
}

std::string ClsactMarkerPath(const std::string& pin_dir, int ifindex) {
  return absl::StrCat(pin_dir, "/", kMarkerPrefix, ifindex);
}

std::optional<int> ClsactMarkerIfindex(const std::string& file_name) {
  absl::string_view rest = file_name;
  int ifindex = 0;
  if (!absl::ConsumePrefix(&rest, kMarkerPrefix) || !absl::SimpleAtoi(rest, &ifindex) || ifindex <= 0)
    return std::nullopt;
  return ifindex;
}

absl::StatusOr<Attachment> Attachment::Attach(const AttachSpec& spec, int program_fd) {
  if (spec.mechanism == Mechanism::kClsact) return AttachClsact(spec, program_fd);
  const auto supported = TcxSupported();
  if (!supported.ok()) return supported.status();
  if (*supported) return AttachTcx(spec, program_fd);
  if (spec.mechanism == Mechanism::kAuto) return AttachClsact(spec, program_fd);
  return absl::UnimplementedError("this kernel has no TCX (it came with 6.6): use clsact, or auto");
}

absl::StatusOr<Attachment> Attachment::AttachTcx(const AttachSpec& spec, int program_fd) {
  if (!spec.pin_dir.empty() && access(PinPath(spec).c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(absl::StrCat(PinPath(spec), " exists: another daemon of instance '", spec.instance,
                                                 "' runs, or one has crashed (`hedgerow clean`)"));
  }
  auto link = TcxLink::Attach(program_fd, spec.ifindex, spec.direction, spec.order);
  if (!link.ok()) return link.status();
  if (!spec.pin_dir.empty()) {
    // On failure the link ends with its descriptor, and the program leaves the hook with it.
    if (absl::Status status = link->Pin(PinPath(spec)); !status.ok()) return status;
  }
  Attachment attachment(spec);
  attachment.link_ = std::move(*link);
  attachment.live_ = true;
  return attachment;
}

absl::StatusOr<Attachment> Attachment::AttachClsact(const AttachSpec& spec, int program_fd) {
  const auto made = EnsureClsact(spec);
  if (!made.ok()) return made.status();
  Attachment attachment(spec);
  attachment.filter_ = FilterOf(spec);
  attachment.made_clsact_ = *made;
  absl::Status status = AddClsactFilter(attachment.filter_, program_fd);
  if (status.ok()) {
    attachment.live_ = true;
    return attachment;
  }
  if (*made) {
    status = netlink::Undone(std::move(status), [&] { return DeleteClsactIfUnused(spec.ifindex).status(); });
    if (!spec.pin_dir.empty()) rmdir(ClsactMarkerPath(spec.pin_dir, spec.ifindex).c_str());
  }
  return status;
}

absl::StatusOr<Attachment> Attachment::Adopt(const AttachSpec& spec) {
  Attachment attachment(spec);
  if (spec.mechanism != Mechanism::kClsact && !spec.pin_dir.empty()) {
    auto link = TcxLink::OpenPinned(PinPath(spec));
    if (link.ok()) {
      const auto info = link->Info();
      if (!info.ok()) return info.status();
      if (info->ifindex != spec.ifindex) {
        return absl::NotFoundError(absl::StrCat(PinPath(spec), " is attached to nothing: its interface is gone"));
      }
      attachment.link_ = std::move(*link);
      attachment.live_ = true;
      return attachment;
    }
    if (!absl::IsNotFound(link.status())) return link.status();
  }
  if (spec.mechanism != Mechanism::kTcx) {
    const ClsactFilter wanted = FilterOf(spec);
    const auto filters = ListClsactFilters(spec.ifindex, spec.direction);
    if (!filters.ok()) return filters.status();
    for (const ClsactFilter& present : *filters) {
      // By name and handle; the order, and with it the priority, may have been configured differently then.
      if (present.name != wanted.name || present.handle != wanted.handle) continue;
      attachment.filter_ = present;
      attachment.live_ = true;
      return attachment;
    }
  }
  return absl::NotFoundError(absl::StrCat("no ", spec.role, " of instance '", spec.instance, "' is attached to ",
                                          net::ToString(spec.direction), " of interface number ", spec.ifindex));
}

Attachment::Attachment(Attachment&& other) noexcept
    : spec_(std::move(other.spec_)),
      link_(std::move(other.link_)),
      filter_(std::move(other.filter_)),
      made_clsact_(other.made_clsact_),
      live_(std::exchange(other.live_, false)) {}

Attachment& Attachment::operator=(Attachment&& other) noexcept {
  if (this == &other) return *this;
  Detach().IgnoreError();
  spec_ = std::move(other.spec_);
  link_ = std::move(other.link_);
  filter_ = std::move(other.filter_);
  made_clsact_ = other.made_clsact_;
  live_ = std::exchange(other.live_, false);
  return *this;
}

Attachment::~Attachment() { Detach().IgnoreError(); }

absl::Status Attachment::Replace(int program_fd) {
  return link_ ? link_->Update(program_fd) : ReplaceClsactFilter(filter_, program_fd);
}

absl::Status Attachment::MoveFirst(int program_fd) {
  if (!link_) return absl::FailedPreconditionError("a filter stays where its priority puts it");
  AttachSpec spec = spec_;
  spec.order = Order::kFirst;
  if (absl::Status status = Detach(); !status.ok()) return status;
  auto moved = AttachTcx(spec, program_fd);
  if (!moved.ok()) moved = AttachTcx(spec_, program_fd);  // better where it was than nowhere
  if (!moved.ok()) return moved.status();
  *this = *std::move(moved);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> Attachment::ProgramId() const {
  if (link_) {
    const auto info = link_->Info();
    if (!info.ok()) return info.status();
    return info->ifindex == 0 ? 0 : info->program_id;
  }
  const auto filters = ListClsactFilters(spec_.ifindex, spec_.direction);
  if (!filters.ok()) return filters.status();
  for (const ClsactFilter& each : *filters)
    if (each.name == filter_.name && each.handle == filter_.handle) return each.program_id;
  return 0;
}

absl::Status Attachment::Detach() {
  if (!live_) return absl::OkStatus();
  if (!link_) return DetachClsact();
  // The pin last: what cannot be detached can still be found by it.
  if (absl::Status status = link_->Detach(); !status.ok()) return status;
  if (!spec_.pin_dir.empty()) {
    if (absl::Status status = RemovePin(PinPath(spec_)); !status.ok()) return status;
  }
  live_ = false;
  return absl::OkStatus();
}

absl::StatusOr<bool> Attachment::RestorePin() const {
  if (!live_ || spec_.pin_dir.empty()) return false;
  const std::string path = link_ ? PinPath(spec_) : ClsactMarkerPath(spec_.pin_dir, spec_.ifindex);
  if (access(path.c_str(), F_OK) == 0 || (!link_ && !made_clsact_)) return false;
  if (link_) {
    if (absl::Status status = link_->Pin(path); !status.ok()) return status;
  } else if (mkdir(path.c_str(), 0700) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("make ", path));
  }
  return true;
}

absl::Status Attachment::DetachClsact() {
  if (absl::Status status = DeleteClsactFilter(filter_); !status.ok()) return status;
  live_ = false;
  const std::string marker = spec_.pin_dir.empty() ? "" : ClsactMarkerPath(spec_.pin_dir, spec_.ifindex);
  const bool marked = !marker.empty() && access(marker.c_str(), F_OK) == 0;
  if (!made_clsact_ && !marked) return absl::OkStatus();
  const auto ours = CountFilters(spec_.ifindex, FilterNamePrefix(spec_.instance));
  if (!ours.ok()) return ours.status();
  if (*ours > 0) return absl::OkStatus();  // The last role of ours to leave removes the qdisc.
  if (const auto removed = DeleteClsactIfUnused(spec_.ifindex); !removed.ok()) return removed.status();
  // If another owner's filter keeps the qdisc alive, the qdisc is that owner's from now on.
  if (marked) rmdir(marker.c_str());
  return absl::OkStatus();
}

bool Attachment::IsLive() const {
  if (!link_) return true;
  const auto info = link_->Info();
  return !info.ok() || info->ifindex != 0;
}

absl::Status Attachment::Release() {
  if (link_ && spec_.pin_dir.empty()) {
    return absl::FailedPreconditionError("an unpinned TCX link ends with its process and cannot be released");
  }
  live_ = false;
  return absl::OkStatus();
}

std::string Attachment::ToString() const {
  return absl::StrCat(link_ ? "tcx " : "clsact ", net::ToString(spec_.direction), " of interface number ",
                      spec_.ifindex, " (", spec_.role, ")");
}

}  // namespace hedgerow::net
