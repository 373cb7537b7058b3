// SPDX-License-Identifier: Apache-2.0
#include "cluster/offload/lost_answers.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "net/unique_fd.h"

namespace hedgerow::offload {
namespace {

constexpr std::string_view kSuffix = "_xdp_tx_errors";  // veth: rx_queue_N_xdp_tx_errors
constexpr size_t kMostStatistics = 10'000;

bool Ask(const net::UniqueFd& socket, const std::string& interface, void* request) {
  ifreq name{};
  if (interface.size() >= sizeof(name.ifr_name)) return false;
  std::copy(interface.begin(), interface.end(), name.ifr_name);
  name.ifr_data = static_cast<char*>(request);
  return ioctl(socket.get(), SIOCETHTOOL, &name) == 0;
}

// The request's head with room behind it, in memory aligned for both.
template <typename Head>
Head* Reserve(std::vector<uint64_t>& memory, size_t behind_bytes) {
  memory.assign((sizeof(Head) + behind_bytes) / sizeof(uint64_t) + 1, 0);
  return reinterpret_cast<Head*>(memory.data());
}

}  // namespace

uint64_t CountLostAnswers(const std::string& interface) {
  const net::UniqueFd descriptor(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  if (!Ask(descriptor, interface, &driver) || driver.n_stats == 0 || driver.n_stats > kMostStatistics) return 0;
  std::vector<uint64_t> name_memory, value_memory;
  auto* const names = Reserve<ethtool_gstrings>(name_memory, size_t{driver.n_stats} * ETH_GSTRING_LEN);
  names->cmd = ETHTOOL_GSTRINGS;
  names->string_set = ETH_SS_STATS;
  names->len = driver.n_stats;
  auto* const values = Reserve<ethtool_stats>(value_memory, driver.n_stats * sizeof(uint64_t));
  values->cmd = ETHTOOL_GSTATS;
  values->n_stats = driver.n_stats;
  if (!Ask(descriptor, interface, names) || !Ask(descriptor, interface, values)) return 0;
  uint64_t lost = 0;
  for (uint32_t i = 0; i < std::min(names->len, values->n_stats); ++i) {
    const char* const text = reinterpret_cast<const char*>(names->data) + size_t{i} * ETH_GSTRING_LEN;
    const std::string_view name(text, strnlen(text, ETH_GSTRING_LEN));
    if (name.ends_with(kSuffix)) lost += values->data[i];
  }
  return lost;
}

}  // namespace hedgerow::offload
