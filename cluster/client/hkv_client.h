// SPDX-License-Identifier: Apache-2.0
//
// A client of the store, as an application would have it: one UDP socket, connected to one address. Of a name's
// addresses that is the first one that the kernel has a route to; one that refuses, before it has answered anything, is
// left for the next one, which what has no answer is sent to as well. Silence it leaves alone; a write that is answered
// OVERLOADED it sends again until it knows what became of it (PendingRequests). What it does not have is the point: it
// knows no leader, no second server and no proxy; put one in front and it lives through an election as it is. Requests
// go out at once (Send...) and their ends are collected by Poll; the calls below them do one at a time. One owner
// thread. `hkv` is its command line; chaos/ and the benchmarks measure with its parts.
//
// A write without a session is done once as well, for it is sent once and copies of it are known for a while. A client
// that writes much opens a session, which the cluster has room for (`sessions.max`).
//
// After a fork the child's client is another one, with a socket of its own, no session and nothing outstanding: with
// the parent's, the two would give one number to two writes, and take each other's answers. The parent's goes on.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cluster/client/pending_requests.h"
#include "cluster/wire/key.h"

namespace hedgerow::client {

// How a client proves itself (docs/WIRE_FORMAT.md): each of its requests has a tag, and answers count only with one.
struct Credentials {
  std::string client{};  // 1 to 31 bytes
  wire::Key key{};
};

class HkvClient {
 public:
  struct Counters {
    uint64_t sent = 0;        // requests
    uint64_t sent_again = 0;  // copies of writes that were answered OVERLOADED
    uint64_t answered = 0;
    uint64_t gave_up = 0;      // no answer within the timeout
    uint64_t unpaired = 0;     // answers that no request waited for: late, duplicates, foreign
    uint64_t no_answers = 0;   // datagrams that are no answer at all
    uint64_t refused = 0;      // ICMP errors: no process listens there, or a filter rejects
    uint64_t unproven = 0;     // answers without the right tag, to a client with credentials
    uint64_t send_failed = 0;  // the kernel would not take it; such a request runs into its timeout
  };

  struct Address {
    sockaddr_storage socket_address{};
    socklen_t bytes = 0;
  };

  // "10.0.0.1:4801", "[fd00::1]:4801", "name:4801". Nothing is sent yet. `outstanding_max`: see PendingRequests.
  static absl::StatusOr<std::unique_ptr<HkvClient>> Connect(absl::string_view server, size_t outstanding_max = 1024,
                                                            std::optional<Credentials> credentials = std::nullopt);
  // To one of several addresses of one server, in the order in which they are tried.
  static absl::StatusOr<std::unique_ptr<HkvClient>> ConnectTo(std::vector<Address> addresses,
                                                              size_t outstanding_max = 1024,
                                                              std::optional<Credentials> credentials = std::nullopt);
  // The addresses of a server, as Connect takes it.
  static absl::StatusOr<std::vector<Address>> AddressesOf(absl::string_view server);
  ~HkvClient();
  HkvClient(const HkvClient&) = delete;
  HkvClient& operator=(const HkvClient&) = delete;

  // From now on writes need no session, and none is opened for them. Such a write is known by its nonce for a
  // while only: a copy that the network, a proxy or this host holds longer is done once more (docs/limits.md).
  // For programs that end after a write.
  void WriteWithoutSession() { without_session_ = true; }

  // Send one request and return its seq (a nonce, of an OPEN and of a write without a session). Errors: those
  // of PendingRequests; of the system, once after a fork. FailedPrecondition: SendWrite before Open, unless
  // WriteWithoutSession was called.
  absl::StatusOr<uint64_t> SendOpen(absl::Duration timeout);
  absl::StatusOr<uint64_t> SendGet(std::string key, absl::Duration timeout);
  absl::StatusOr<uint64_t> SendWrite(std::vector<kv::Operation> operations, absl::Duration timeout);

  // The requests that have ended, by an answer or because their timeout passed. Waits at most `wait` for the
  // first; returns nothing earlier only if nothing is outstanding. Each request ends exactly once.
  std::vector<Outcome> Poll(absl::Duration wait);

  // One request and its end. DeadlineExceeded: no answer, or OVERLOADED to the last; a write may have been done
  // or not. FailedPrecondition: the cluster does not know the session (any more), or an increment found no
  // number. PermissionDenied: DENIED. ResourceExhausted: overloaded; a write was not done, and never will be.
  // Unavailable: NOT_LEADER. InvalidArgument: too large, or malformed. NotFound: the key (Get). What else ends
  // meanwhile is kept for Poll. A write opens a session first where there is none: the client's first one, the
  // first one after a fork, and the next one after the cluster did not know the session.
  absl::Status Open(absl::Duration timeout);
  absl::StatusOr<std::string> Get(std::string key, absl::Duration timeout);
  absl::Status Put(std::string key, std::string value, absl::Duration timeout);
  absl::Status Delete(std::string key, absl::Duration timeout);
  // False: the key held something else. `expected` nothing: the key must not exist.
  absl::StatusOr<bool> CompareAndSet(std::string key, std::optional<std::string> expected, std::string value,
                                     absl::Duration timeout);
  // The number after it.
  absl::StatusOr<int64_t> Increment(std::string key, int64_t delta, absl::Duration timeout);
  // All or none; for each operation a value (an increment's number, else empty). Aborted: a compare-and-set
  // among them found something else.
  absl::StatusOr<std::vector<std::string>> Write(std::vector<kv::Operation> operations, absl::Duration timeout);

  uint64_t session() const { return IsOfThisProcess() ? requests_.session() : 0; }
  // Readable: Poll has something. The number stays; the socket under it becomes another one after a fork, from the
  // next call on, after a refusal that makes it try another address, and after silence. epoll(7) forgets the former
  // one: add the number again before each wait, and leave EEXIST alone.
  int fd() const { return fd_; }
  const Counters& counters() const { return counters_; }

 private:
  HkvClient(std::vector<Address> addresses, size_t outstanding_max, std::optional<Credentials> credentials);

  absl::Status Start();
  absl::Status ConnectSocket();
  void TryNextAddress();
  void LeaveSilentSocket(uint64_t now_ns);
  bool IsOfThisProcess() const;
  absl::Status BeOfThisProcess();
  bool LacksSession() const { return !without_session_ && requests_.session() == 0; }
  absl::StatusOr<uint64_t> Send(absl::StatusOr<Draft> draft);
  void Send(std::string datagram);
  void Refused(int error);
  std::optional<wire::HkvAnswer> TakeAnswer(std::string_view datagram);
  void Collect(uint64_t now_ns, std::vector<Outcome>& outcomes);
  absl::StatusOr<wire::HkvAnswer> Wait(absl::StatusOr<uint64_t> seq);

  std::vector<Address> addresses_;
  size_t address_ = 0;  // the one that fd_ is connected to
  size_t untried_ = 0;  // how many others may be tried for what waits
  bool heard_ = false;  // it has answered
  static constexpr uint64_t kSocketPauseMin_ns = 1'000'000'000;
  uint64_t heard_ns_ = 0;                          // when it last has
  uint64_t socket_kept_until_ns_ = 0;              // whatever the silence
  uint64_t socket_pause_ns_ = kSocketPauseMin_ns;  // the next one's; doubles until something is heard
  size_t outstanding_max_;
  std::optional<Credentials> credentials_;
  std::string unproven_{};    // the status of the last such answer
  std::string why_silent_{};  // what the kernel has reported since the last call that waited
  int fd_ = -1;
  PendingRequests requests_{{}};
  uint64_t forks_ = 0;  // of the process that fd_ and requests_ belong to
  bool without_session_ = false;
  bool session_ended_ = false;  // the cluster does not know it
  std::vector<Outcome> kept_;   // ended during a call that waited for another
  Counters counters_;
};

// What an answer means to a caller: OK, or the status that the calls above return for it.
absl::Status ToStatus(const wire::HkvAnswer& answer);

}  // namespace hedgerow::client
