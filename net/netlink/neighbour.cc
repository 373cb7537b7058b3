// SPDX-License-Identifier: Apache-2.0
#include "net/netlink/neighbour.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

#include "absl/strings/str_cat.h"
#include "net/netlink/host_route.h"
#include "net/netlink/netlink.h"

namespace hedgerow::net {

absl::StatusOr<UnresolvedNeighbours> ListUnresolvedNeighbours() {
  UnresolvedNeighbours found;
  netlink::Request request(RTM_GETNEIGH, NLM_F_DUMP, ndmsg{});
  const absl::Status asked = netlink::Ask(request, "list neighbours", [&](const netlink::Message& message) {
    const auto header = message.Header<ndmsg>();
    const auto address = AddressAttribute(message.AttributesAfter<ndmsg>(), NDA_DST);
    if (message.type != RTM_NEWNEIGH || !address) return;
    if ((header.ndm_state & NUD_FAILED) != 0) found.failed.emplace(header.ndm_ifindex, *address);
    if ((header.ndm_state & NUD_INCOMPLETE) != 0) found.asked.emplace(header.ndm_ifindex, *address);
  });
  if (!asked.ok()) return asked;
  return found;
}

absl::Status ResolveNeighbour(const Neighbour& neighbour) {
  ndmsg header{};
  header.ndm_family = static_cast<uint8_t>(neighbour.second.family());
  header.ndm_ifindex = neighbour.first;
  header.ndm_flags = NTF_USE;
  netlink::Request request(RTM_NEWNEIGH, NLM_F_CREATE, header);
  request.Put(NDA_DST, neighbour.second.wire());
  return netlink::Do(request, absl::StrCat("probe the neighbour ", neighbour.second.ToString()));
}

}  // namespace hedgerow::net
