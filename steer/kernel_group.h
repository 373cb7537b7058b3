// SPDX-License-Identifier: Apache-2.0
//
// The kernel part of a group: one SK_REUSEPORT program for UDP and one for TCP, each with its array of sockets,
// and the maps that both share. Everything is pinned below <bpffs>/hedgerow-steer/<name>/, so that it outlives
// the supervisor. Needs CAP_BPF and CAP_NET_ADMIN. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bpf/abi/steer_abi.h"
#include "net/ip_address.h"

namespace hedgerow::steer {

enum class Transport { kUdp, kTcp };

inline const char* NameOf(Transport transport) { return transport == Transport::kUdp ? "UDP" : "TCP"; }

// Of each slot's sockets.
using Generations = std::array<uint8_t, HR_STEER_SLOTS>;
inline int PlaceOf(int slot, int generation) { return slot + generation * HR_STEER_SLOTS; }

struct Device {
  hr_steer_network network{};
  hr_steer_device device{};
};

struct GroupSpec {
  hr_steer_config config{};  // NewConfig() draws its seed; layout and has_devices are Create's to set
  std::vector<Device> devices{};
  std::array<hr_steer_entry, HR_STEER_BUCKETS> table{};
};

struct GroupCounts {
  std::vector<hr_steer_slot_counts> slots{};  // HR_STEER_SLOTS, summed over CPUs
  hr_steer_counts all{};
};

class KernelGroup {
 public:
  // Loads and pins both programs, with seed, devices and table complete. AlreadyExists: the name has pins
  // (adopt or remove them).
  static absl::StatusOr<std::unique_ptr<KernelGroup>> Create(const std::string& bpffs, const std::string& name,
                                                             const GroupSpec& spec);
  // Opens what is pinned. NotFound: nothing. FailedPrecondition: another layout (the message says which, and
  // what to do).
  static absl::StatusOr<std::unique_ptr<KernelGroup>> Open(const std::string& bpffs, const std::string& name);
  // Removes the pins. Sockets that have the program keep it until they close.
  static absl::Status Remove(const std::string& bpffs, const std::string& name);
  virtual ~KernelGroup() = default;

  virtual const hr_steer_config& config() const = 0;
  virtual absl::StatusOr<std::vector<Device>> Devices() const = 0;

  // Before bind(2) of the group's first socket, so that no packet is ever spread without the program (an
  // unbound socket with SO_REUSEPORT gets a reuseport group of its own, which the others join).
  virtual absl::Status Attach(Transport transport, int socket) = 0;
  // `socket` is bound (UDP) or listens (TCP); `place`: PlaceOf(). AlreadyExists: the place has a socket. The kernel
  // takes a socket out that closes.
  virtual absl::Status Insert(Transport transport, int place, int socket) = 0;
  virtual absl::Status Remove(Transport transport, int place) = 0;
  // SO_COOKIE of the place's socket; 0: it has none that is open.
  virtual absl::StatusOr<uint64_t> CookieOf(Transport transport, int place) const = 0;

  // Where the group's datagrams are of sessions and `keeps`, the former table stays in force for flows that began by
  // it, and all buckets change by one store; a change within a change leaves the oldest one in force. Else each bucket
  // changes at once, one after the other.
  virtual absl::Status WriteTable(const std::array<hr_steer_entry, HR_STEER_BUCKETS>& table,
                                  const Generations& generations, bool keeps) = 0;
  virtual absl::StatusOr<std::array<hr_steer_entry, HR_STEER_BUCKETS>> ReadTable() const = 0;
  virtual Generations ReadGenerations() const { return {}; }
  // Whether a former table is in force, and its end.
  virtual bool IsChanging() const { return false; }
  virtual void EndChange() {}
  // The workers of these places end, after WriteTable: of their flows only those stay that opened a session.
  virtual void Leave(const std::set<int>& /*places*/) {}
  // The time by which flows are heard. Several times in HR_STEER_TICK_S.
  virtual void Tick() {}

  // Sources that stay with the slot of their open connections. A pin to a slot without a socket has no effect.
  // SetRecording returns when no program runs that saw the old value.
  virtual absl::Status SetRecording(bool on) = 0;
  // ResourceExhausted: HR_STEER_PINS sources are pinned; pins_full has counted it.
  virtual absl::Status Pin(const hr_steer_source& source, uint8_t slot) = 0;
  virtual absl::Status Unpin(const hr_steer_source& source) = 0;
  virtual absl::StatusOr<std::vector<std::pair<hr_steer_source, uint8_t>>> Pins() const = 0;

  virtual absl::StatusOr<GroupCounts> Counts() const = 0;

  // The id of the program that the kernel asks for this socket's reuseport group now, 0: none,
  // HR_STEER_CLASSIC_PROGRAM: a classic filter; and of ours. Reads the kernel's memory (CAP_PERFMON): there is
  // no call for it.
  virtual absl::StatusOr<uint32_t> ProgramOf(int socket) const = 0;
  // Of a classic filter its instructions, two words each, as they stand in memory; else empty.
  virtual absl::StatusOr<std::vector<uint32_t>> ClassicFilterOf(int /*socket*/) const {
    return std::vector<uint32_t>();
  }
  virtual uint32_t OwnProgram(Transport transport) const = 0;
};

// A configuration with a seed of getrandom(2).
absl::StatusOr<hr_steer_config> NewConfig();

// The devices by network, as the kernel's LPM trie has them.
class DeviceIndex {
 public:
  DeviceIndex() = default;
  DeviceIndex(const std::vector<Device>& devices);  // NOLINT(google-explicit-constructor): it is the same list
  // Of the longest prefix; null without one. `words`: as in hr_steer_network.
  const hr_steer_device* Find(uint32_t family, const uint64_t (&words)[2]) const;

 private:
  // By the prefix's bits, the longest first, then by family and network.
  std::map<uint32_t, std::map<std::array<uint64_t, 3>, hr_steer_device>, std::greater<>> by_length_{};
};

// What the kernel would choose, natively (bpf/steer/bucket.h): device ids by `devices`, then the bucket, pins
// and the table.
struct Choice {
  hr_steer_source source{};
  uint32_t bucket = 0;
  hr_steer_entry entry{};
  bool pinned = false;
  uint8_t slot = 0;  // by the pin, else the entry's: other_slot where it is vacant and empty is HR_STEER_OTHER
};
// `payload`: of a UDP datagram, for gateways; may be empty.
Choice Explain(const hr_steer_config& config, const DeviceIndex& devices,
               absl::Span<const std::pair<hr_steer_source, uint8_t>> pins,
               const std::array<hr_steer_entry, HR_STEER_BUCKETS>& table, const net::IpAddress& address,
               absl::Span<const uint8_t> payload);

}  // namespace hedgerow::steer
