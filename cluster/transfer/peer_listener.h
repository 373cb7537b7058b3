// SPDX-License-Identifier: Apache-2.0
//
// The TCP port of a node's peers: accepts connections, in a bounded number, and hands them to gRPC. gRPC itself would
// accept without a bound. Used by the receiver of snapshots (receiver.h), whose calls it also counts.
//
// A source is an IP address, since a port is no host's own. Beyond a bound a connection that has not shown the
// cluster's key is ended for the new one, the oldest first: idle connections keep no member out, and a transfer never
// makes room. One that does not show it within a few bytes and seconds is ended as well, so that gRPC's parser works
// for none for long. Connections of other sources than members are told why and closed: nothing of theirs is read.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "net/unique_fd.h"
#include "net/ip_address.h"

namespace hedgerow::transfer {

// One end of a connection.
struct TcpEnd {
  net::IpAddress address;
  uint16_t port = 0;

  bool operator==(const TcpEnd&) const = default;
};

// As gRPC names a caller: "ipv4:10.0.0.1:40000" or "ipv6:%5Bfd00::1%5D:40000". Nothing: neither.
std::optional<TcpEnd> ParseCaller(absl::string_view peer);

class PeerListener {
 public:
  // A cluster has at most seven members, and each makes one connection for a transfer.
  static constexpr size_t kConnectionsMax = 64;
  static constexpr size_t kConnectionsOfSource = 8;
  // A leader makes one call, and may make another before the first has ended.
  static constexpr int kCallsPerConnection = 2;
  // Connections that are handed to gRPC in a second: what was ended is its to close, and takes a moment. More wait to
  // be accepted; more of one source are closed, so that they keep no other source waiting.
  static constexpr uint32_t kPerSecond = 200;
  static constexpr uint32_t kOfSourcePerSecond = 32;
  // Until it has shown the key a caller sends HTTP/2's preface, a hello and an offer, or a TLS handshake with a chain
  // of certificates, in a few round trips.
  static constexpr uint64_t kUnprovedMax_bytes = 64 * 1024;
  static constexpr uint64_t kUnproved_ms = 10'000;

  struct Statistics {
    uint64_t strangers = 0;      // connections from an address that is no member's, closed unread
    uint64_t unproved = 0;       // connections that did not show the key within kUnprovedMax_bytes and kUnproved_ms
    uint64_t displaced = 0;      // connections without a key that made room for another one
    uint64_t rate = 0;           // connections beyond kOfSourcePerSecond, closed unheard
    uint64_t no_place = 0;       // connections that were closed, because all others had shown the key
    uint64_t no_descriptor = 0;  // connections that were closed: the process may open no more files
    uint64_t silent = 0;         // connections that ended before they made a call
    uint64_t calls = 0;          // calls beyond kCallsPerConnection
  };

  // All are called by the listener's thread: whether an address may be a member's, what takes over a connection, and
  // the bytes that tell another source why it gets none (null: it is not told).
  using IsMember = std::function<bool(const net::IpAddress&)>;
  using Hand = std::function<void(int connection)>;
  using Refusal = std::function<std::string(const net::IpAddress&)>;

  // Unavailable: another process has the address ("10.0.0.1:4802", "[fd00::1]:4802").
  static absl::StatusOr<std::unique_ptr<PeerListener>> Listen(const std::string& address);
  uint16_t port() const;
  // Accepts from now on. Once.
  void Accept(IsMember is_member, Hand hand, Refusal refusal);
  // Accepts no more; what was handed over stays open. As the destructor does.
  void Stop();
  ~PeerListener() { Stop(); }

  // Of calls in a connection that was handed over; `caller` as gRPC names it. Any thread.
  //
  // False: the connection has as many calls as it may. Every call that was begun ends.
  bool BeginCall(const std::string& caller);
  void EndCall(const std::string& caller);
  // It has shown the cluster's key, and makes room for none.
  void Proved(const std::string& caller);

  Statistics statistics() const;

 private:
  struct Connection {
    net::UniqueFd kept;  // of the same socket as gRPC's
    TcpEnd from;
    uint64_t since_ms = 0;
    bool proved = false;
    bool called = false;
    int calls = 0;
  };
  // In the order of their arrival.
  using Connections = std::list<Connection>;

  explicit PeerListener(net::UniqueFd listening) : listening_(std::move(listening)) {}
  void Run();
  void Wait(bool accepts);
  void Refill();
  void Refuse(const net::UniqueFd& connection, const TcpEnd& from);
  void Place(net::UniqueFd connection, const TcpEnd& from);
  uint64_t Statistics::*WhyClosed(const TcpEnd& from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MakeRoom(const TcpEnd& from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndUnproved() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Connection* Find(const std::string& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(Connections::iterator connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const net::UniqueFd listening_;
  std::atomic<bool> stopping_ = false;
  // The thread's.
  IsMember is_member_;
  Hand hand_;
  Refusal refusal_;
  uint64_t refilled_ms_ = 0;
  uint32_t left_ = kPerSecond;
  std::vector<net::IpAddress> handed_from_;  // in this second, one entry a connection

  mutable absl::Mutex mutex_;
  Connections connections_ ABSL_GUARDED_BY(mutex_);
  Statistics statistics_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace hedgerow::transfer
