// SPDX-License-Identifier: Apache-2.0
//
// Which hkv requests a node serves: those that a client has proved to be its own by a trailer (wire/hkv_trailer.h) and
// may make, and those of anonymous clients where the configuration says so. Each node judges what reaches it, before
// anything else is done with it: what is forwarded to the leader was judged here, and no committed command depends on
// it. Immutable; the front end has a new one once key files were read again.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cluster/wire/hkv.h"
#include "cluster/wire/hkv_trailer.h"
#include "cluster/wire/key.h"

namespace hedgerow::node {

// A client by its name, its keys, and the prefixes of the keys that it may read and write; the empty one is all of
// them.
struct NamedClient {
  std::string name{};
  std::vector<wire::Key> keys{};  // more than one while its key is changed
  std::vector<std::string> read{};
  std::vector<std::string> write{};

  bool operator==(const NamedClient&) const = default;
};

class ClientAccess {
 public:
  // Which key of which client has proved a request; 0: none has. An answer's tag is made with the same.
  using KeyNumber = uint16_t;
  struct Verdict {
    KeyNumber proved_by = 0;
    bool denied = false;
    wire::HkvDenial why{};  // if denied
    std::string key{};      // for which the right is missing
  };

  // `first`: its keys' numbers begin here, so that those of the one before are others.
  ClientAccess(bool anonymous, std::vector<NamedClient> clients, KeyNumber first = 1);
  ClientAccess(const ClientAccess&) = delete;  // it refers to its own clients
  ClientAccess& operator=(const ClientAccess&) = delete;

  // Of a datagram that was parsed as `request`, at `now_ms` since 1970.
  Verdict Judge(std::string_view datagram, const wire::HkvRequest& request, uint64_t now_ms) const;
  // The same for all keys of a client, and of every reload. 0: no key of these.
  uint64_t ClientOf(KeyNumber number) const;
  // Null: it is none of these.
  const wire::Key* Find(KeyNumber number) const;
  // Where the next one's numbers begin.
  KeyNumber next_number() const;

 private:
  Verdict Prove(std::string_view datagram, uint64_t now_ms, const NamedClient*& client) const;

  bool anonymous_;
  std::vector<NamedClient> clients_;
  struct Proof {
    const NamedClient* client;
    wire::Key key;
  };
  std::vector<Proof> proofs_;                                  // by number, from `first_`
  std::unordered_multimap<std::string_view, size_t> by_name_;  // index of proofs_
  KeyNumber first_;
};

}  // namespace hedgerow::node
