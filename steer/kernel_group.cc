// SPDX-License-Identifier: Apache-2.0
//
// Create() loads the object, completes its maps, and pins everything (group_object.h); then both it and Open()
// work with what is pinned.
#include "steer/kernel_group.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "net/mapped.h"
#include "net/wait_for_programs.h"
#include "steer/group_object.h"

namespace hedgerow::steer {
namespace {

// An array's value of 4 bytes, as it lies in memory: the kernel rounds it up to 8.
struct TableElement {
  uint32_t word;
  uint32_t pad;
};

constexpr std::chrono::seconds kTick(HR_STEER_TICK_S);

std::chrono::nanoseconds Now() { return std::chrono::steady_clock::now().time_since_epoch(); }
uint32_t NowAt() { return static_cast<uint32_t>(Now().count() >> HR_STEER_AT_SHIFT); }

// A per-CPU array, each element summed. T consists of 64-bit counters.
template <typename T>
absl::Status AddPerCpu(int map, T* sums, uint32_t elements) {
  static_assert(sizeof(T) % sizeof(uint64_t) == 0);
  const int cpus = libbpf_num_possible_cpus();
  if (cpus <= 0) return absl::InternalError("cannot learn the number of CPUs");
  std::vector<uint32_t> keys(elements);
  std::vector<T> values(static_cast<size_t>(cpus) * elements);
  uint32_t next = 0, count = elements;
  if (bpf_map_lookup_batch(map, nullptr, &next, keys.data(), values.data(), &count, nullptr) != 0 && errno != ENOENT)
    return absl::ErrnoToStatus(errno, "reading counters");
  for (size_t i = 0; i < static_cast<size_t>(cpus) * count; ++i) {
    auto* const words = reinterpret_cast<uint64_t*>(&sums[i / static_cast<size_t>(cpus)]);
    const auto* const added = reinterpret_cast<const uint64_t*>(&values[i]);
    for (size_t word = 0; word < sizeof(T) / sizeof(uint64_t); ++word) words[word] += added[word];
  }
  return absl::OkStatus();
}

class PinnedGroup : public KernelGroup {
 public:
  static absl::StatusOr<std::unique_ptr<KernelGroup>> Open(const std::string& folder) {
    auto object = OpenGroupObject(folder);
    if (!object.ok()) return object.status();
    auto table = net::Mapped<TableElement>::Open(object->table.get(), 2 * HR_STEER_BUCKETS);
    if (!table.ok()) return table.status();
    auto state = net::Mapped<hr_steer_state>::Open(object->state.get(), 1);
    if (!state.ok()) return state.status();
    return std::unique_ptr<KernelGroup>(new PinnedGroup(*std::move(object), *std::move(table), *std::move(state)));
  }

  const hr_steer_config& config() const override { return object_.config; }

  absl::StatusOr<std::vector<Device>> Devices() const override {
    std::vector<Device> devices;
    Device device;
    int error = bpf_map_get_next_key(object_.devices.get(), nullptr, &device.network);
    for (; error == 0; error = bpf_map_get_next_key(object_.devices.get(), &device.network, &device.network)) {
      if (bpf_map_lookup_elem(object_.devices.get(), &device.network, &device.device) != 0)
        return absl::ErrnoToStatus(errno, "reading the devices");
      devices.push_back(device);
    }
    if (errno != ENOENT) return absl::ErrnoToStatus(errno, "reading the devices");
    return devices;
  }

  absl::Status Attach(Transport transport, int socket) override {
    const int fd = OfTransport(object_.programs, transport).fd.get();
    if (setsockopt(socket, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &fd, sizeof(fd)) == 0) return absl::OkStatus();
    const absl::Status status =
        absl::ErrnoToStatus(errno, absl::StrCat("attaching the program to a ", NameOf(transport), " socket"));
    return errno == EINVAL ? absl::InvalidArgumentError(
                                 absl::StrCat(std::string(status.message()), ": it needs SO_REUSEPORT first"))
                           : status;
  }

  absl::Status Insert(Transport transport, int place, int socket) override {
    int protocol = 0;
    socklen_t bytes = sizeof(protocol);
    const int slot = place % HR_STEER_SLOTS;
    if (absl::Status status = CheckPlace(place); !status.ok()) return status;
    if (getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) != 0)
      return absl::ErrnoToStatus(errno, "looking at a socket");
    if (protocol != (transport == Transport::kUdp ? IPPROTO_UDP : IPPROTO_TCP))
      return absl::InvalidArgumentError(absl::StrCat("slot ", slot, ": not a ", NameOf(transport), " socket"));
    const auto key = static_cast<uint32_t>(place);
    const uint64_t value = static_cast<uint64_t>(socket);
    if (bpf_map_update_elem(OfTransport(object_.sockets, transport).get(), &key, &value, BPF_NOEXIST) == 0)
      return absl::OkStatus();
    const std::string where = absl::StrCat("slot ", slot, ": ");
    switch (errno) {
      case EEXIST:
        return absl::AlreadyExistsError(absl::StrCat(where, "it has a ", NameOf(transport), " socket already"));
      case EBUSY:
        return absl::FailedPreconditionError(
            absl::StrCat(where, "the ", NameOf(transport),
                         " socket is in another group, or its daemon has it in a map of a BPF program of its own "
                         "(nginx: quic_bpf) or uses it for UDP encapsulation: the kernel allows one of these"));
      case EINVAL:
        return absl::InvalidArgumentError(absl::StrCat(
            where, transport == Transport::kUdp ? "the UDP socket is not bound" : "the TCP socket does not listen",
            ", or is without SO_REUSEPORT"));
      default: return absl::ErrnoToStatus(errno, absl::StrCat(where, "inserting a ", NameOf(transport), " socket"));
    }
  }

  absl::Status Remove(Transport transport, int place) override {
    if (absl::Status status = CheckPlace(place); !status.ok()) return status;
    const auto key = static_cast<uint32_t>(place);
    if (bpf_map_delete_elem(OfTransport(object_.sockets, transport).get(), &key) == 0 || errno == ENOENT)
      return absl::OkStatus();
    return absl::ErrnoToStatus(
        errno, absl::StrCat("slot ", place % HR_STEER_SLOTS, ": removing its ", NameOf(transport), " socket"));
  }

  absl::StatusOr<uint64_t> CookieOf(Transport transport, int place) const override {
    if (absl::Status status = CheckPlace(place); !status.ok()) return status;
    const auto key = static_cast<uint32_t>(place);
    uint64_t cookie = 0;
    if (bpf_map_lookup_elem(OfTransport(object_.sockets, transport).get(), &key, &cookie) == 0) return cookie;
    if (errno == ENOENT) return 0;
    return absl::ErrnoToStatus(
        errno, absl::StrCat("slot ", place % HR_STEER_SLOTS, ": looking for its ", NameOf(transport), " socket"));
  }

  // Stores of a word each: an update by bpf(2) copies bytes, of which a program could see some.
  absl::Status WriteTable(const std::array<hr_steer_entry, HR_STEER_BUCKETS>& table, const Generations& generations,
                          bool keeps) override {
    const bool begins = keeps && object_.config.openers != 0 && !IsChanging();
    // Programs that still read the other half, of the last change.
    if (absl::Status status = begins ? net::WaitForPrograms() : absl::OkStatus(); !status.ok()) return status;
    const uint32_t half = begins ? 1 - Half() : Half();
    for (uint32_t bucket = 0; bucket < HR_STEER_BUCKETS; ++bucket) Entry(half, bucket) = table[bucket].word;
    for (size_t slot = 0; slot < generations.size(); ++slot) state_->generation[half][slot] = generations[slot];
    if (begins) {
      state_->began = NowAt();
      __atomic_store_n(&state_->tables, half | HR_STEER_FORMER, __ATOMIC_RELEASE);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::array<hr_steer_entry, HR_STEER_BUCKETS>> ReadTable() const override {
    std::array<hr_steer_entry, HR_STEER_BUCKETS> table{};
    for (uint32_t bucket = 0; bucket < HR_STEER_BUCKETS; ++bucket) table[bucket].word = Entry(Half(), bucket);
    return table;
  }

  Generations ReadGenerations() const override {
    Generations generations;
    for (size_t slot = 0; slot < generations.size(); ++slot) generations[slot] = state_->generation[Half()][slot];
    return generations;
  }

  bool IsChanging() const override { return (state_->tables & HR_STEER_FORMER) != 0; }
  void EndChange() override { state_->tables = Half(); }
  void Leave(const std::set<int>& places) override {
    std::set<int> slots;
    for (const int place : places) slots.insert(place % HR_STEER_SLOTS);
    for (uint32_t bucket = 0; IsChanging() && bucket < HR_STEER_BUCKETS; ++bucket) {
      hr_steer_entry entry{.word = Entry(1 - Half(), bucket)};
      if (!slots.contains(entry.slot)) continue;
      entry.is_vacant = 1;
      Entry(1 - Half(), bucket) = entry.word;
    }
    if (IsChanging() && object_.config.any) SendElsewhere(places);
  }
  void Tick() override {
    state_->tick = static_cast<uint32_t>(1 + std::chrono::duration_cast<std::chrono::seconds>(Now()) / kTick % 255);
  }

  absl::Status SetRecording(bool on) override {
    if (absl::Status status = WaitWhereFreed(); !status.ok()) return status;
    if (on) state_->has_pins = 1;
    state_->recording = on ? 1 : 0;
    if (absl::Status status = net::WaitForPrograms(); !status.ok()) return status;
    if (!on) LookForPins();
    return absl::OkStatus();
  }

  absl::Status Pin(const hr_steer_source& source, uint8_t slot) override {
    const uint32_t value = slot;
    uint32_t present = 0;
    const bool known = bpf_map_lookup_elem(object_.pins.get(), &source, &present) == 0;
    if (!known || present != value) {
      if (absl::Status status = WaitWhereFreed(); !status.ok()) return status;
      if (bpf_map_update_elem(object_.pins.get(), &source, &value, BPF_ANY) != 0) {
        if (errno == E2BIG || errno == ENOMEM) {
          ++pins_full_;
          return absl::ResourceExhaustedError(absl::StrCat("no place for more than ", HR_STEER_PINS, " sources"));
        }
        return absl::ErrnoToStatus(errno, "pinning a source");
      }
      freed_ = freed_ || known;
    }
    state_->has_pins = 1;
    return absl::OkStatus();
  }

  absl::Status Unpin(const hr_steer_source& source) override {
    if (bpf_map_delete_elem(object_.pins.get(), &source) == 0) {
      freed_ = true;
    } else if (errno != ENOENT) {
      return absl::ErrnoToStatus(errno, "unpinning a source");
    }
    LookForPins();
    return absl::OkStatus();
  }

  // Programs may insert meanwhile, and a key that is deleted under the iteration would begin it anew; so a
  // bound.
  absl::StatusOr<std::vector<std::pair<hr_steer_source, uint8_t>>> Pins() const override {
    std::vector<std::pair<hr_steer_source, uint8_t>> pins;
    hr_steer_source source{};
    int error = bpf_map_get_next_key(object_.pins.get(), nullptr, &source);
    for (int i = 0; error == 0 && i < 2 * HR_STEER_PINS; ++i) {
      uint32_t slot = 0;
      if (bpf_map_lookup_elem(object_.pins.get(), &source, &slot) == 0)
        pins.emplace_back(source, static_cast<uint8_t>(slot));
      error = bpf_map_get_next_key(object_.pins.get(), &source, &source);
    }
    if (error != 0 && errno != ENOENT)
      return absl::ErrnoToStatus(errno, "reading the sources that stay with their connections");
    return pins;
  }

  absl::StatusOr<GroupCounts> Counts() const override {
    GroupCounts counts;
    counts.slots.resize(HR_STEER_SLOTS);
    counts.all.pins_full = pins_full_;
    absl::Status status = AddPerCpu(object_.counts.get(), &counts.all, 1);
    if (status.ok()) status = AddPerCpu(object_.slot_counts.get(), counts.slots.data(), HR_STEER_SLOTS);
    if (!status.ok()) return status;
    return counts;
  }

  absl::StatusOr<uint32_t> ProgramOf(int socket) const override { return Ask(socket, HR_STEER_ASK_ID); }

  absl::StatusOr<std::vector<uint32_t>> ClassicFilterOf(int socket) const override {
    const auto length = Ask(socket, HR_STEER_ASK_LENGTH);
    if (!length.ok()) return length.status();
    std::vector<uint32_t> words;
    for (uint32_t i = 0; i < 2 * *length; ++i) {
      const auto word = Ask(socket, HR_STEER_ASK_FIRST + i);
      if (!word.ok()) return word.status();
      words.push_back(*word);
    }
    return words;
  }

  uint32_t OwnProgram(Transport transport) const override { return OfTransport(object_.programs, transport).id; }

 private:
  PinnedGroup(GroupObject object, net::Mapped<TableElement> table, net::Mapped<hr_steer_state> state)
      : object_(std::move(object)), table_(std::move(table)), state_(std::move(state)) {}

  absl::StatusOr<uint32_t> Ask(int socket, uint64_t what) const {
    struct stat info {};
    if (fstat(socket, &info) != 0) return absl::ErrnoToStatus(errno, "looking at a socket");
    if (!S_ISSOCK(info.st_mode))
      return absl::InvalidArgumentError(absl::StrCat("descriptor ", socket, " is no socket"));
    const uint64_t arguments[2] = {static_cast<uint64_t>(socket), what};
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = arguments, .ctx_size_in = sizeof(arguments));
    if (bpf_prog_test_run_opts(object_.program_of.fd.get(), &options) != 0)
      return absl::ErrnoToStatus(errno, "reading a socket's program");
    return options.retval;
  }

  template <typename T>
  static const T& OfTransport(const std::array<T, 2>& both, Transport transport) {
    return both[transport == Transport::kUdp ? 0 : 1];
  }

  static absl::Status CheckPlace(int place) {
    if (place >= 0 && place < HR_STEER_PLACES) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("place ", place, " of ", HR_STEER_PLACES));
  }

  uint32_t Half() const { return state_->tables & HR_STEER_SECOND; }
  volatile uint32_t& Entry(uint32_t half, uint32_t bucket) const {
    return table_.At(half * HR_STEER_BUCKETS + bucket)->word;
  }

  // An element that the hash map has given up is used by its next insertion, while a program that has found it
  // may still read it.
  absl::Status WaitWhereFreed() {
    if (!freed_) return absl::OkStatus();
    const absl::Status status = net::WaitForPrograms();
    freed_ = !status.ok();
    return status;
  }

  // Those that began in the change that lasts and opened no session go by the table from now on. Whatever fails, they
  // stay until the worker ends.
  void SendElsewhere(const std::set<int>& places) {
    const hr_steer_opened nowhere{.place = HR_STEER_PLACES | HR_STEER_UNOPENED, .at = NowAt()};
    (void)net::WaitForPrograms();  // one that has read the table before may still enter some
    std::vector<hr_steer_flow> flows(2 * HR_STEER_FLOWS);
    std::vector<hr_steer_opened> opened(flows.size());
    uint32_t next[2] = {}, count = static_cast<uint32_t>(flows.size());
    if (bpf_map_lookup_batch(object_.flows.get(), nullptr, next, flows.data(), opened.data(), &count, nullptr) != 0 &&
        errno != ENOENT)
      return;
    for (uint32_t i = 0; i < count; ++i) {
      const int place = static_cast<int>(opened[i].place & ~HR_STEER_UNOPENED);
      if ((opened[i].place & HR_STEER_UNOPENED) != 0 && places.contains(place))
        bpf_map_update_elem(object_.flows.get(), &flows[i], &nowhere, BPF_EXIST);
    }
  }

  // Packets pay for pins only while there are any.
  void LookForPins() {
    hr_steer_source source{};
    if (state_->recording != 0) return;
    state_->has_pins = bpf_map_get_next_key(object_.pins.get(), nullptr, &source) == 0 ? 1 : 0;
  }

  GroupObject object_;
  net::Mapped<TableElement> table_{};
  net::Mapped<hr_steer_state> state_{};
  bool freed_ = false;
  uint64_t pins_full_ = 0;  // by this process; the programs count theirs
};

}  // namespace

absl::StatusOr<std::unique_ptr<KernelGroup>> KernelGroup::Create(const std::string& bpffs, const std::string& name,
                                                                 const GroupSpec& spec) {
  if (absl::Status status = CheckGroupName(name); !status.ok()) return status;
  const absl::Status made =
      MakeGroupPins(bpffs, name, [&](const std::string& folder) { return LoadAndPinGroup(spec, folder); });
  if (!made.ok()) return made;
  return PinnedGroup::Open(GroupPinDir(bpffs, name));
}

absl::StatusOr<std::unique_ptr<KernelGroup>> KernelGroup::Open(const std::string& bpffs, const std::string& name) {
  if (absl::Status status = CheckGroupName(name); !status.ok()) return status;
  const std::string folder = GroupPinDir(bpffs, name);
  if (access(folder.c_str(), F_OK) != 0) {
    return errno == ENOENT ? absl::NotFoundError(absl::StrCat("there is no group '", name, "' below ", bpffs))
                           : absl::ErrnoToStatus(errno, absl::StrCat("looking at ", folder));
  }
  return PinnedGroup::Open(folder);
}

absl::Status KernelGroup::Remove(const std::string& bpffs, const std::string& name) {
  return RemoveGroupPins(bpffs, name);
}

}  // namespace hedgerow::steer
