// SPDX-License-Identifier: Apache-2.0
//
// The settings of `hedgerow steer run` and `adopt`, and the paths that follow from a group's name. Filled by cli/.
#pragma once

#include <signal.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bpf/abi/steer_abi.h"
#include "net/ip_address.h"
#include "operate/http_access.h"
#include "steer/kernel_group.h"

namespace hedgerow::steer {

inline constexpr char kDefaultRunDir[] = "/run/hedgerow-steer";
inline constexpr char kMonitorGroup[] = "hedgerow-monitor";  // its members may use monitor.sock, as those of hedgerowd

struct Listen {
  net::IpAddress address{};
  uint16_t port = 0;

  // "192.0.2.1:2055" or "[2001:db8::1]:2055". InvalidArgument says what is wrong.
  static absl::StatusOr<Listen> Parse(const std::string& text);
  std::string ToString() const;
  bool wildcard() const;
  friend bool operator==(const Listen&, const Listen&) = default;
};

// Where everything of a group stands: <run dir>/NAME/.
struct Places {
  std::string run_dir = kDefaultRunDir;
  std::string name{};

  std::string folder() const { return absl::StrCat(run_dir, "/", name); }
  std::string admin() const { return folder() + "/admin.sock"; }
  std::string monitor() const { return folder() + "/monitor.sock"; }
  std::string notify() const { return folder() + "/notify.sock"; }
  std::string record() const { return folder() + "/record.json"; }
};

// "nobody" or "65534:65534"; the ids that a worker runs with.
struct WorkerUser {
  bool set = false;  // false: the supervisor's own
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups{};
  std::string name{};
  std::string home{};
};

struct Settings {
  Places places{};
  Listen listen{};
  bool udp = true;
  bool tcp = true;
  int workers = 1;
  hr_steer_empty empty = HR_STEER_REJECT;
  absl::Duration empty_after = absl::Seconds(1);
  absl::Duration heartbeat = absl::ZeroDuration();  // none
  absl::Duration stop_timeout = absl::Seconds(10);  // from SIGTERM to SIGKILL
  // Of a worker that another one has replaced: how it is asked to end, and the time from there to SIGKILL. As long,
  // flows stay where they began when buckets move.
  int drain_signal = SIGTERM;
  absl::Duration drain_timeout = absl::Minutes(1);
  WorkerUser user{};
  uint32_t socket_uid = 0;     // the group's sockets belong to this user: the kernel admits no other user's to them
  int64_t receive_buffer = 0;  // bytes; 0: the kernel's default
  uint32_t ipv6_prefix = 128;
  std::vector<Device> devices{};
  uint32_t field_offset = 0;
  uint32_t field_bytes = 0;                // 0: no field
  std::vector<hr_steer_opener> openers{};  // of its sessions; none: its datagrams are of no sessions
  bool any_session = false;                // so is a flow that was heard before a change
  std::string metrics{};                   // empty: none
  operate::HttpAccess metrics_access{};
  std::string bpffs{};
  std::vector<std::string> command{};

  // The policy's name in options and reports: "reject", "next", "kernel".
  std::string EmptyText() const;
  // The transports in the order of LISTEN_FDS.
  std::vector<Transport> transports() const;
};

std::string TransportText(Transport transport);  // "udp", "tcp"

// "NETWORK ID [gateway]" a line, # begins a comment. InvalidArgument with file and line.
absl::StatusOr<std::vector<Device>> ReadDevices(const std::string& file);
// "12:4": 4 bytes at offset 12 of the UDP payload name a gateway's device. InvalidArgument also without a gateway in
// `settings.devices`.
absl::Status ReadGatewayField(const std::string& text, Settings& settings);
// "quic", "dtls", "wireguard", "any" (of these, or of another protocol) or "none": what opens a session, as data.
absl::Status ReadSessions(const std::string& text, Settings& settings);
// InvalidArgument: there is no such user or group. Empty texts: not set.
absl::StatusOr<WorkerUser> FindWorkerUser(const std::string& user, const std::string& group);

}  // namespace hedgerow::steer
