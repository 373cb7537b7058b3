// SPDX-License-Identifier: Apache-2.0
#include "cluster/client/hkv_client.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <utility>

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cluster/wire/hkv_trailer.h"
#include "operate/clock.h"

namespace hedgerow::client {
namespace {

constexpr int kReceiveBuffer_bytes = 1 << 20;
constexpr uint64_t kSocketPauseMax_ns = 32'000'000'000;

uint64_t Timeout_ns(absl::Duration timeout) {
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Nanoseconds(timeout)));
}

absl::StatusOr<uint64_t> RandomNumber() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) return absl::ErrnoToStatus(errno, "getrandom");
  return number;
}

// What an ICMP error of an earlier datagram makes of the next call on a connected socket. The call itself has done
// nothing.
bool IsRefusal(int error) {
  return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH || error == ENOPROTOOPT;
}

absl::Status BadServer(absl::string_view server, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", server, "' ", why, "; expected an address such as 10.0.0.1:4801, [fd00::1]:4801 or name:4801"));
}

// How often this process and those it comes from were forked off; the child counts. A pid would not do: two processes
// of different namespaces may have the same.
std::atomic<uint64_t> forks{0};

// 0, or the error of pthread_atfork(3).
int CountForks() {
  static const int error = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  return error;
}

std::string TextOf(const HkvClient::Address& of) {
  const sockaddr_storage& address = of.socket_address;
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), of.bytes, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "the server";
  }
  return address.ss_family == AF_INET6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

}  // namespace

absl::StatusOr<std::vector<HkvClient::Address>> HkvClient::AddressesOf(absl::string_view server) {
  const size_t colon = server.rfind(':');
  if (colon == absl::string_view::npos || colon + 1 == server.size()) return BadServer(server, "has no port");
  absl::string_view host = server.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != absl::string_view::npos) {
    return BadServer(server, "is an IPv6 address without brackets");
  }
  if (host.empty()) return BadServer(server, "has no address");
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port(server.substr(colon + 1));
  // getaddrinfo(3) takes 70337 for 4801.
  int number = 0;
  if (!absl::SimpleAtoi(port, &number) || number < 1 || number > 65535)
    return BadServer(server, "has no port from 1 to 65535");
  if (const int error = getaddrinfo(std::string(host).c_str(), port.c_str(), &hints, &found); error != 0) {
    return BadServer(server, absl::StrCat("cannot be resolved: ", gai_strerror(error)));
  }
  std::vector<Address> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Address& address = addresses.emplace_back();
    std::memcpy(&address.socket_address, each->ai_addr, each->ai_addrlen);
    address.bytes = each->ai_addrlen;
  }
  freeaddrinfo(found);
  return addresses;
}

namespace {

std::string WhyDenied(const wire::HkvAnswer& answer) {
  switch (answer.denial) {
    case wire::HkvDenial::kAnonymous:
      return "the node serves clients with a key only: give a client's name and key file";
    case wire::HkvDenial::kUnproven: return "the node knows no client of this name and key";
    case wire::HkvDenial::kClock: return "this host's clock and the node's differ by more than 20 s";
    case wire::HkvDenial::kRead:
      return absl::StrCat("the client has no right to read '", answer.denied_key, "'; nothing was done");
    case wire::HkvDenial::kWrite:
      return absl::StrCat("the client has no right to write '", answer.denied_key, "'; nothing was done");
  }
  return "the node denied it, for a reason that this client does not know";
}

kv::Operation Make(kv::OperationKind kind, std::string key) { return {.kind = kind, .key = std::move(key)}; }

}  // namespace

absl::Status ToStatus(const wire::HkvAnswer& answer) {
  const std::string name(Name(answer.status));
  switch (answer.status) {
    case wire::HkvStatus::kOk: return absl::OkStatus();
    case wire::HkvStatus::kNotFound: return absl::NotFoundError("no such key");
    case wire::HkvStatus::kMismatch:
      return absl::AbortedError("the key holds another value, or another request has this number; nothing was done");
    case wire::HkvStatus::kNotANumber:
      return absl::FailedPreconditionError("the value is no number, or would pass 64 bits; nothing was done");
    case wire::HkvStatus::kUnknownSession:
      return absl::FailedPreconditionError("the cluster does not know the session, which may have ended");
    case wire::HkvStatus::kOverloaded:
      return absl::ResourceExhaustedError(
          "the cluster is overloaded; nothing was done. `hedgerow-node status` at the leader says by what");
    case wire::HkvStatus::kNoSpace:
      return absl::ResourceExhaustedError("the store is full; nothing was done. Deletes are");
    case wire::HkvStatus::kShort:
      return absl::ResourceExhaustedError(absl::StrCat("the answer wants a request of ", answer.hint, " bytes"));
    case wire::HkvStatus::kNotLeader:
      return absl::UnavailableError(answer.hint == 0
                                        ? "the node is not the leader and knows of none"
                                        : absl::StrCat("the node is not the leader; node ", answer.hint, " is"));
    case wire::HkvStatus::kMalformed:
    case wire::HkvStatus::kTooLarge: return absl::InvalidArgumentError(absl::StrCat("the node answered ", name));
    case wire::HkvStatus::kUnknownVersion:
      return absl::UnimplementedError(absl::StrCat("the node speaks version ", answer.hint, " of hkv, and this client ",
                                                   wire::kHkvVersion, ": use a client and a node of one version"));
    case wire::HkvStatus::kDenied: return absl::PermissionDeniedError(WhyDenied(answer));
    case wire::HkvStatus::kBelowLowest: return absl::InternalError(absl::StrCat("the node answered ", name));
  }
  return absl::InternalError("the node answered with a status that this client does not know");
}

absl::StatusOr<std::unique_ptr<HkvClient>> HkvClient::Connect(absl::string_view server, size_t outstanding_max,
                                                              std::optional<Credentials> credentials) {
  absl::StatusOr<std::vector<Address>> addresses = AddressesOf(server);
  if (!addresses.ok()) return addresses.status();
  absl::StatusOr<std::unique_ptr<HkvClient>> client =
      ConnectTo(*std::move(addresses), outstanding_max, std::move(credentials));
  if (client.ok() || absl::IsInvalidArgument(client.status())) return client;
  return absl::Status(client.status().code(),
                      absl::StrCat("cannot connect to ", server, ": ", client.status().message()));
}

absl::StatusOr<std::unique_ptr<HkvClient>> HkvClient::ConnectTo(std::vector<Address> addresses, size_t outstanding_max,
                                                                std::optional<Credentials> credentials) {
  if (addresses.empty()) return absl::InvalidArgumentError("the server has no address");
  if (credentials.has_value() &&
      (credentials->client.empty() || credentials->client.size() > wire::kHkvClientNameMax_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a client's name has 1 to ", wire::kHkvClientNameMax_bytes, " bytes"));
  }
  if (const int error = CountForks(); error != 0) return absl::ErrnoToStatus(error, "pthread_atfork");
  std::unique_ptr<HkvClient> client(new HkvClient(std::move(addresses), outstanding_max, std::move(credentials)));
  if (absl::Status started = client->Start(); !started.ok()) return started;
  return client;
}

HkvClient::HkvClient(std::vector<Address> addresses, size_t outstanding_max, std::optional<Credentials> credentials)
    : addresses_(std::move(addresses)), outstanding_max_(outstanding_max), credentials_(std::move(credentials)) {}

HkvClient::~HkvClient() {
  if (fd_ >= 0) close(fd_);
}

// As new, in the process that calls it.
absl::Status HkvClient::Start() {
  kv::SessionName secret;
  if (getrandom(&secret, sizeof(secret), 0) != sizeof(secret)) return absl::ErrnoToStatus(errno, "getrandom");
  address_ = 0;
  heard_ = false;
  absl::Status connected = ConnectSocket();
  while (!connected.ok() && address_ + 1 < addresses_.size()) {
    ++address_;
    connected = ConnectSocket();
  }
  if (!connected.ok()) return connected;
  const size_t trailer_bytes =
      credentials_.has_value() ? credentials_->client.size() + wire::kHkvRequestTrailerFixed_bytes : 0;
  requests_ = PendingRequests(secret, outstanding_max_, OnOverload::kSettle, trailer_bytes);
  kept_.clear();
  session_ended_ = false;
  counters_ = {};
  forks_ = forks.load();
  return absl::OkStatus();
}

// To the present address, under the former socket's number: after a fork that is this process's descriptor, and the
// parent has its own. An error leaves the former one as it is.
absl::Status HkvClient::ConnectSocket() {
  const Address& to = addresses_[address_];
  const int made = socket(to.socket_address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return absl::ErrnoToStatus(errno, "socket");
  if (connect(made, reinterpret_cast<const sockaddr*>(&to.socket_address), to.bytes) != 0 ||
      (fd_ >= 0 && dup3(made, fd_, O_CLOEXEC) < 0)) {
    const absl::Status failed = absl::ErrnoToStatus(errno, TextOf(to));
    close(made);
    return failed;
  }
  setsockopt(made, SOL_SOCKET, SO_RCVBUF, &kReceiveBuffer_bytes, sizeof(kReceiveBuffer_bytes));
  if (fd_ < 0)
    fd_ = made;
  else
    close(made);
  return absl::OkStatus();
}

// The present one has refused. One that has answered before is the server's, which will be back there.
void HkvClient::TryNextAddress() {
  if (heard_ || untried_ == 0) return;
  const size_t refused = address_;
  while (untried_ > 0) {
    --untried_;
    address_ = (address_ + 1) % addresses_.size();
    if (ConnectSocket().ok()) return requests_.RepeatAll(operate::Monotonic_ns());
  }
  address_ = refused;
}

// A socket keeps the source address that it was connected with, which may leave this host: DHCP gives another one, a
// tunnel comes or goes. Then IPv4 sends nothing, and IPv6 what no answer finds its way back to. An answer on its way to
// the former socket is lost, so a request that waits is given its whole time, and a server that is away costs few.
void HkvClient::LeaveSilentSocket(uint64_t now_ns) {
  if (now_ns < requests_.next_deadline_ns() || now_ns < socket_kept_until_ns_ ||
      now_ns < std::max(heard_ns_, requests_.oldest_sent_ns()) + requests_.longest_timeout_ns()) {
    return;
  }
  socket_kept_until_ns_ = now_ns + socket_pause_ns_;
  socket_pause_ns_ = std::min(2 * socket_pause_ns_, kSocketPauseMax_ns);
  (void)ConnectSocket();
}

bool HkvClient::IsOfThisProcess() const { return forks_ == forks.load(std::memory_order_relaxed); }

absl::Status HkvClient::BeOfThisProcess() {
  if (IsOfThisProcess()) return absl::OkStatus();
  return Start();
}

absl::StatusOr<uint64_t> HkvClient::SendOpen(absl::Duration timeout) {
  if (absl::Status status = BeOfThisProcess(); !status.ok()) return status;
  const absl::StatusOr<uint64_t> nonce = RandomNumber();
  if (!nonce.ok()) return nonce.status();
  return Send(requests_.Open(*nonce, operate::Monotonic_ns(), Timeout_ns(timeout)));
}

absl::StatusOr<uint64_t> HkvClient::SendGet(std::string key, absl::Duration timeout) {
  if (absl::Status status = BeOfThisProcess(); !status.ok()) return status;
  return Send(requests_.Get(std::move(key), operate::Monotonic_ns(), Timeout_ns(timeout)));
}

absl::StatusOr<uint64_t> HkvClient::SendWrite(std::vector<kv::Operation> operations, absl::Duration timeout) {
  if (absl::Status status = BeOfThisProcess(); !status.ok()) return status;
  if (LacksSession()) {
    return absl::FailedPreconditionError(
        "this client has no session, of this process: open one, or ask for writes without");
  }
  if (requests_.session() != 0)
    return Send(requests_.Write(std::move(operations), operate::Monotonic_ns(), Timeout_ns(timeout)));
  const absl::StatusOr<uint64_t> nonce = RandomNumber();
  if (!nonce.ok()) return nonce.status();
  return Send(requests_.WriteOnce(*nonce, std::move(operations), operate::Monotonic_ns(), Timeout_ns(timeout)));
}

absl::StatusOr<uint64_t> HkvClient::Send(absl::StatusOr<Draft> draft) {
  if (!draft.ok()) return draft.status();
  ++counters_.sent;
  untried_ = addresses_.size() - 1;
  Send(draft->datagram);
  return draft->request.seq;
}

void HkvClient::Send(std::string datagram) {
  if (credentials_.has_value())
    datagram =
        wire::SealHkvRequest(std::move(datagram), credentials_->client, operate::UnixNow_ms(), credentials_->key);
  ssize_t sent = send(fd_, datagram.data(), datagram.size(), 0);
  // A connected socket reports the ICMP error of an earlier datagram here, and then this one has not left.
  for (int i = 0; sent < 0 && i < 2; ++i) {
    const int error = errno == EDESTADDRREQ ? ENETUNREACH : errno;  // a socket that found no route is not connected
    if (i == 0 && (error == ENETUNREACH || error == EINVAL))
      (void)ConnectSocket();  // its source address has left this host
    else if (IsRefusal(error))
      Refused(error);
    else if (error != EINTR)
      break;
    sent = send(fd_, datagram.data(), datagram.size(), 0);
  }
  if (sent >= 0) return;
  ++counters_.send_failed;
  why_silent_ = absl::StrCat("sending to ", TextOf(addresses_[address_]), " failed: ", strerror(errno));
}

void HkvClient::Refused(int error) {
  ++counters_.refused;
  why_silent_ = absl::StrCat(TextOf(addresses_[address_]), error == ECONNREFUSED
                                                               ? " refuses it: nothing listens there"
                                                               : absl::StrCat(" refuses it: ", strerror(error)));
  TryNextAddress();
}

// With credentials nothing counts that the server has not proved.
std::optional<wire::HkvAnswer> HkvClient::TakeAnswer(std::string_view datagram) {
  std::optional<wire::HkvAnswer> answer = wire::ParseHkvAnswer(datagram);
  if (!answer.has_value()) {
    ++counters_.no_answers;
  } else if (credentials_.has_value() && !wire::IsHkvTagRight(datagram, credentials_->key)) {
    ++counters_.unproven;
    const absl::Status status = ToStatus(*answer);
    unproven_ = status.ok() ? std::string(Name(answer->status)) : std::string(status.message());
    return std::nullopt;
  }
  if (answer.has_value()) heard_ = true;
  return answer;
}

void HkvClient::Collect(uint64_t now_ns, std::vector<Outcome>& outcomes) {
  std::array<char, wire::kHkvMax_bytes + 1> bytes;
  // Bounded by what can be outstanding, so that a flood cannot hold the caller for ever.
  for (size_t i = 0; i < 4096; ++i) {
    const ssize_t received = recv(fd_, bytes.data(), bytes.size(), 0);
    if (received < 0) {
      if (!IsRefusal(errno) && errno != EINTR) break;
      if (IsRefusal(errno)) Refused(errno);
      continue;
    }
    std::optional<wire::HkvAnswer> answer = TakeAnswer({bytes.data(), static_cast<size_t>(received)});
    if (!answer.has_value()) continue;
    heard_ns_ = now_ns;
    socket_pause_ns_ = kSocketPauseMin_ns;
    socket_kept_until_ns_ = std::min(socket_kept_until_ns_, now_ns + kSocketPauseMin_ns);
    const uint64_t to_be_repeated = requests_.to_be_repeated();
    std::optional<Outcome> outcome = requests_.Answer(*std::move(answer), now_ns);
    if (outcome.has_value()) {
      ++counters_.answered;
      outcomes.push_back(*std::move(outcome));
    } else if (requests_.to_be_repeated() == to_be_repeated) {
      ++counters_.unpaired;
    }
  }
  LeaveSilentSocket(now_ns);
  while (std::optional<Outcome> outcome = requests_.GiveUp(now_ns)) {
    ++counters_.gave_up;
    outcomes.push_back(*std::move(outcome));
  }
  while (const std::optional<Draft> draft = requests_.Repeat(now_ns)) {
    ++counters_.sent_again;
    Send(draft->datagram);
  }
}

std::vector<Outcome> HkvClient::Poll(absl::Duration wait) {
  if (!BeOfThisProcess().ok()) return {};
  std::vector<Outcome> outcomes = std::exchange(kept_, {});
  uint64_t now_ns = operate::Monotonic_ns();
  const uint64_t until_ns = now_ns + Timeout_ns(std::min(wait, absl::Hours(1)));
  Collect(now_ns, outcomes);
  while (outcomes.empty() && requests_.outstanding() > 0 && now_ns < until_ns) {
    const uint64_t sleep_ns = std::min({until_ns, requests_.next_deadline_ns(), requests_.next_repeat_ns()}) - now_ns;
    const timespec timeout{static_cast<time_t>(sleep_ns / 1'000'000'000), static_cast<long>(sleep_ns % 1'000'000'000)};
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    ppoll(&readable, 1, &timeout, nullptr);
    now_ns = operate::Monotonic_ns();
    Collect(now_ns, outcomes);
  }
  return outcomes;
}

// Ends by itself: the request has a deadline, and Poll wakes for it.
absl::StatusOr<wire::HkvAnswer> HkvClient::Wait(absl::StatusOr<uint64_t> seq) {
  if (!seq.ok()) return seq.status();
  std::vector<Outcome> others = std::exchange(kept_, {});
  while (true) {
    std::optional<Outcome> mine;
    for (Outcome& outcome : Poll(absl::Seconds(60))) {
      if (outcome.seq == *seq && !mine.has_value()) {
        mine = std::move(outcome);
      } else {
        others.push_back(std::move(outcome));
      }
    }
    if (!mine.has_value()) continue;
    kept_ = std::move(others);
    const std::string why_silent = std::exchange(why_silent_, "");
    if (!mine->answer.has_value()) {
      if (!unproven_.empty()) {
        return absl::DeadlineExceededError(
            absl::StrCat("no answer with the right tag in time; one without says: ", std::exchange(unproven_, "")));
      }
      return absl::DeadlineExceededError(
          mine->overloaded ? std::string("the cluster was overloaded to the last; the write may have been done or not")
                           : absl::StrCat("no answer in time", why_silent.empty() ? "" : "; ", why_silent));
    }
    session_ended_ = session_ended_ || mine->answer->status == wire::HkvStatus::kUnknownSession;
    if (absl::Status status = ToStatus(*mine->answer); !status.ok()) return status;
    return *std::move(mine->answer);
  }
}

absl::Status HkvClient::Open(absl::Duration timeout) {
  absl::Status opened = Wait(SendOpen(timeout)).status();
  if (opened.ok()) session_ended_ = false;
  return opened;
}

absl::StatusOr<std::string> HkvClient::Get(std::string key, absl::Duration timeout) {
  absl::StatusOr<wire::HkvAnswer> answer = Wait(SendGet(std::move(key), timeout));
  if (!answer.ok()) return answer.status();
  return std::move(answer->value);
}

absl::StatusOr<std::vector<std::string>> HkvClient::Write(std::vector<kv::Operation> operations,
                                                          absl::Duration timeout) {
  if (absl::Status status = BeOfThisProcess(); !status.ok()) return status;
  if (LacksSession() || session_ended_) {
    if (absl::Status opened = Open(timeout); !opened.ok()) return opened;
  }
  const size_t count = operations.size();
  absl::StatusOr<wire::HkvAnswer> answer = Wait(SendWrite(std::move(operations), timeout));
  if (!answer.ok()) return answer.status();
  if (answer->values.size() != count) return absl::InternalError("the answer has not a value for each operation");
  return std::move(answer->values);
}

absl::Status HkvClient::Put(std::string key, std::string value, absl::Duration timeout) {
  kv::Operation put = Make(kv::OperationKind::kPut, std::move(key));
  put.value = std::move(value);
  return Write({std::move(put)}, timeout).status();
}

absl::Status HkvClient::Delete(std::string key, absl::Duration timeout) {
  return Write({Make(kv::OperationKind::kDelete, std::move(key))}, timeout).status();
}

absl::StatusOr<bool> HkvClient::CompareAndSet(std::string key, std::optional<std::string> expected, std::string value,
                                              absl::Duration timeout) {
  kv::Operation set = Make(kv::OperationKind::kCompareAndSet, std::move(key));
  set.value = std::move(value);
  set.expected = std::move(expected);
  const absl::Status status = Write({std::move(set)}, timeout).status();
  if (absl::IsAborted(status)) return false;
  if (!status.ok()) return status;
  return true;
}

absl::StatusOr<int64_t> HkvClient::Increment(std::string key, int64_t delta, absl::Duration timeout) {
  kv::Operation increment = Make(kv::OperationKind::kIncrement, std::move(key));
  increment.delta = delta;
  const absl::StatusOr<std::vector<std::string>> values = Write({std::move(increment)}, timeout);
  if (!values.ok()) return values.status();
  const std::string& text = values->front();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return absl::InternalError(absl::StrCat("the increment was answered '", text, "', which is no number"));
  }
  return number;
}

}  // namespace hedgerow::client
