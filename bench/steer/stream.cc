// SPDX-License-Identifier: Apache-2.0
#include "bench/steer/stream.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "absl/strings/str_cat.h"
#include "bench/load/pacing.h"
#include "bench/steer/source.h"

namespace hedgerow::bench {
namespace {

constexpr uint64_t kTcp = uint64_t{1} << 32;  // in an event's data, beside the source's number
constexpr size_t kMostWaiting = 1 << 20;      // bytes of one connection
constexpr uint64_t kSendsInATurn = 64;
constexpr int64_t kOpenWithinNs = 20'000'000'000;

int64_t Microseconds(const timeval& time) { return time.tv_sec * int64_t{1'000'000} + time.tv_usec; }

}  // namespace

SourceStream::SourceStream(const StreamOptions& options, std::function<void(const char*)> on_event)
    : options_(options), on_event_(std::move(on_event)), buffer_(64 << 10) {}

absl::StatusOr<std::unique_ptr<SourceStream>> SourceStream::Open(const StreamOptions& options,
                                                                 std::function<void(const char*)> on_event) {
  if (options.bytes < sizeof(SteerMessage) || options.bytes > kSteerMessageMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message has ", sizeof(SteerMessage), " to ", kSteerMessageMost, " bytes"));
  }
  if (options.rate <= 0 || options.sources == 0 || options.answer_every == 0 || !(options.udp || options.tcp)) {
    return absl::InvalidArgumentError("rate, sources and answer_every must be positive, and there must be a transport");
  }
  if ((options.seconds + options.warm_up) * options.rate > 50e6)
    return absl::InvalidArgumentError("at most 50 million messages in a run");
  if (absl::Status status = RaiseFileLimit(uint64_t{options.sources} * 2 + 64); !status.ok()) return status;
  std::unique_ptr<SourceStream> stream(new SourceStream(options, std::move(on_event)));
  if (absl::Status status = stream->OpenAll(); !status.ok()) return status;
  return stream;
}

absl::Status SourceStream::OpenAll() {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  for (uint32_t source = 0; source < options_.sources; ++source) order_.push_back(source);
  // Neighbours in time are no neighbours by address. Fixed, so that all systems meet the same order.
  std::shuffle(order_.begin(), order_.end(), std::mt19937(1));
  for (uint32_t source = 0; options_.udp && source < options_.sources; ++source) {
    absl::StatusOr<Address> address = AddressOf(source);
    if (!address.ok()) return address.status();
    absl::StatusOr<net::UniqueFd> fd = ConnectFrom(*address, options_.target, false);
    if (!fd.ok()) return fd.status();
    datagrams_.push_back(*std::move(fd));
    Watch(epoll_.get(), EPOLL_CTL_ADD, datagrams_.back().get(), EPOLLIN, source);
  }
  if (!options_.tcp) return absl::OkStatus();
  connections_.resize(options_.sources);
  for (const uint32_t source : order_) Connect(source);
  const int64_t deadline_ns = MonotonicNs() + kOpenWithinNs;
  const auto all_open = [this] {
    return std::all_of(connections_.begin(), connections_.end(), [](const Connection& each) { return each.open; });
  };
  while (!options_.patient && !all_open()) {
    if (result_.connect_failures > 0) return absl::UnavailableError("a connection to the collector fails");
    if (MonotonicNs() > deadline_ns) return absl::DeadlineExceededError("connections to the collector do not open");
    Wait(MonotonicNs() + 10'000'000);
  }
  return absl::OkStatus();
}

absl::StatusOr<Address> SourceStream::AddressOf(uint32_t source) const {
  return SourceAddress(options_.first_source, options_.one_address ? 0 : source);
}

bool SourceStream::WantsAnswer(uint32_t id) const { return (id / options_.sources) % options_.answer_every == 0; }

std::string SourceStream::MessageOf(uint32_t id) const {
  SteerMessage message;
  message.id = id;
  message.source = records_[id].source;
  message.bytes = options_.bytes;
  message.flags = WantsAnswer(id) ? SteerMessage::kAnswerWanted : 0;
  std::string bytes(options_.bytes, '\0');
  std::memcpy(bytes.data(), &message, sizeof message);
  return bytes;
}

void SourceStream::SendDue(uint64_t until) {
  for (uint64_t sent = 0; next_ < until && sent < kSendsInATurn; ++next_, ++sent) {
    const auto id = static_cast<uint32_t>(next_);
    StreamRecord& record = records_[id];
    record.source = order_[id % options_.sources];
    // With both, a source's messages take turns.
    record.tcp = options_.tcp && (!options_.udp || (id / options_.sources / options_.answer_every) % 2 == 1);
    if (WantsAnswer(id)) {
      record.latency_us = StreamRecord::kNoAnswer;
      ++outstanding_;
    }
    if (next_ >= measured_from_)
      result_.send_lag_ns.Record(static_cast<uint64_t>(std::max<int64_t>(0, MonotonicNs() - record.intended_ns)));
    if (record.tcp != 0) {
      SendOnConnection(record.source, id);
    } else {
      SendDatagram(record.source, id);
    }
  }
}

void SourceStream::SendDatagram(uint32_t source, uint32_t id) {
  const std::string message = MessageOf(id);
  const int fd = datagrams_[source].get();
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (send(fd, message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return;
    if (errno != ECONNREFUSED) break;  // of an earlier datagram: this one has not been sent yet
    ++result_.udp_refused;
  }
  ++result_.unsent;
}

void SourceStream::SendOnConnection(uint32_t source, uint32_t id) {
  Connection& connection = connections_[source];
  if (WantsAnswer(id)) connection.outstanding.push_back(id);
  if (!connection.open) {
    if (!WantsAnswer(id)) ++result_.overflowed;  // without an answer it is not sent again
    return;
  }
  if (connection.out.size() > kMostWaiting) {
    ++result_.overflowed;
    return;
  }
  const std::string message = MessageOf(id);
  connection.out += message;
  waiting_bytes_ += message.size();
  if (connection.out.size() == message.size()) Flush(connection, source);
}

void SourceStream::Connect(uint32_t source) {
  Connection& connection = connections_[source];
  absl::StatusOr<Address> address = AddressOf(source);
  absl::StatusOr<net::UniqueFd> fd = address.ok() ? ConnectFrom(*address, options_.target, true) : address.status();
  ++result_.connects;
  if (!fd.ok()) {
    Lose(source, false);
    return;
  }
  connection.fd = *std::move(fd);
  Watch(epoll_.get(), EPOLL_CTL_ADD, connection.fd.get(), EPOLLIN | EPOLLOUT, kTcp | source);
}

void SourceStream::Lose(uint32_t source, bool was_open) {
  Connection& connection = connections_[source];
  ++(was_open ? result_.connections_lost : result_.connect_failures);
  waiting_bytes_ -= connection.out.size();
  connection.fd.Reset();
  connection.open = false;
  connection.out.clear();
  connection.in.clear();
  retries_.emplace(was_open ? 0 : MonotonicNs() + options_.retry_ns, source);
}

void SourceStream::Flush(Connection& connection, uint32_t source) {
  const ssize_t taken =
      send(connection.fd.get(), connection.out.data(), connection.out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (taken > 0) {
    waiting_bytes_ -= static_cast<uint64_t>(taken);
    connection.out.erase(0, static_cast<size_t>(taken));
  } else if (taken < 0 && errno != EAGAIN) {
    return;  // the event EPOLLHUP or EPOLLERR ends the connection
  }
  const uint32_t writable = connection.out.empty() ? 0 : EPOLLOUT;
  Watch(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), EPOLLIN | writable, kTcp | source);
}

void SourceStream::Wait(int64_t due_ns) {
  const int64_t now_ns = MonotonicNs();
  while (!retries_.empty() && retries_.begin()->first <= now_ns) {
    const uint32_t source = retries_.begin()->second;
    retries_.erase(retries_.begin());
    Connect(source);
  }
  if (!retries_.empty()) due_ns = std::min(due_ns, retries_.begin()->first);
  const int64_t wait_ns = std::max<int64_t>(0, due_ns - MonotonicNs());
  const timespec timeout = {wait_ns / 1'000'000'000, wait_ns % 1'000'000'000};
  std::array<epoll_event, 256> events;
  const int count = epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()), &timeout, nullptr);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    const auto source = static_cast<uint32_t>(event.data.u64);
    if ((event.data.u64 & kTcp) == 0) {
      ReadDatagrams(source);
      continue;
    }
    Connection& connection = connections_[source];
    if (!connection.fd.valid()) continue;
    if (!connection.open && (event.events & (EPOLLERR | EPOLLHUP)) != 0) {
      Lose(source, false);
      continue;
    }
    if (!connection.open && (event.events & EPOLLOUT) != 0) {
      connection.open = true;
      for (const uint32_t id : connection.outstanding) {
        connection.out += MessageOf(id);
        ++records_[id].sent_again;
      }
      waiting_bytes_ += connection.out.size();
    }
    if ((event.events & EPOLLOUT) != 0) Flush(connection, source);
    if ((event.events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) ReadConnection(source);
  }
}

void SourceStream::ReadDatagrams(uint32_t source) {
  const ssize_t bytes = recv(datagrams_[source].get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  if (bytes < 0) {
    if (errno == ECONNREFUSED) ++result_.udp_refused;
    return;
  }
  if (const auto answer = ParseSteerMessage({buffer_.data(), static_cast<size_t>(bytes)}))
    Answered(*answer, MonotonicNs());
}

void SourceStream::ReadConnection(uint32_t source) {
  Connection& connection = connections_[source];
  const ssize_t bytes = recv(connection.fd.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) {
    Lose(source, true);
    return;
  }
  if (bytes < 0) return;
  connection.in.append(reinterpret_cast<const char*>(buffer_.data()), static_cast<size_t>(bytes));
  const int64_t now_ns = MonotonicNs();
  size_t at = 0;
  for (; connection.in.size() - at >= sizeof(SteerMessage); at += sizeof(SteerMessage)) {
    const auto* begin = reinterpret_cast<const uint8_t*>(connection.in.data()) + at;
    const auto answer = ParseSteerMessage({begin, sizeof(SteerMessage)});
    if (!answer.has_value()) {
      Lose(source, true);
      return;
    }
    const auto found = std::find(connection.outstanding.begin(), connection.outstanding.end(), answer->id);
    if (found != connection.outstanding.end()) connection.outstanding.erase(found);
    Answered(*answer, now_ns);
  }
  connection.in.erase(0, at);
}

void SourceStream::Answered(const SteerMessage& answer, int64_t now_ns) {
  if (answer.flags != SteerMessage::kAnswer || answer.id >= next_) return;
  StreamRecord& record = records_[answer.id];
  if (record.latency_us != StreamRecord::kNoAnswer) {
    ++result_.duplicates;
    return;
  }
  const auto latency_ns = static_cast<uint64_t>(std::max<int64_t>(0, now_ns - record.intended_ns));
  record.latency_us = static_cast<uint32_t>(std::min<uint64_t>(latency_ns / 1000, StreamRecord::kNoneWanted - 1));
  record.slot = answer.slot;
  record.pid = answer.pid;
  --outstanding_;
  if (answer.id >= measured_from_)
    (record.tcp != 0 ? result_.tcp_latency_ns : result_.udp_latency_ns).Record(latency_ns);
}

absl::StatusOr<StreamResult> SourceStream::Run(const std::function<bool()>& stop) {
  AskForExactTimers();
  const uint64_t total = Pacing::RequestsIn(options_.seconds + options_.warm_up, options_.rate);
  measured_from_ = Pacing::RequestsIn(options_.warm_up, options_.rate);
  const Pacing pacing(MonotonicNs() + 1'000'000, options_.rate);
  records_.resize(total);
  for (uint64_t id = 0; id < total; ++id) records_[id].intended_ns = pacing.DueNs(id);
  rusage before;
  bool measuring = false;
  uint64_t due = 0;
  while (next_ < total && !stop()) {
    if (!measuring && next_ >= measured_from_) {
      measuring = true;
      on_event_("measuring");
      getrusage(RUSAGE_SELF, &before);
    }
    due = std::min(pacing.DueCount(MonotonicNs()), measuring ? total : std::max<uint64_t>(measured_from_, 1));
    SendDue(due);
    Wait(next_ < due ? 0 : pacing.DueNs(next_));
  }
  records_.resize(next_);
  result_.sent = next_;
  result_.unsent += waiting_bytes_ / options_.bytes;
  const int64_t end_ns = MonotonicNs() + options_.linger_ns;
  while ((outstanding_ > 0 || waiting_bytes_ > 0) && MonotonicNs() < end_ns)
    Wait(std::min(end_ns, MonotonicNs() + 10'000'000));
  rusage after;
  getrusage(RUSAGE_SELF, &after);
  on_event_("measured");
  if (!measuring) return absl::CancelledError("stopped before anything was measured");
  result_.user_us = Microseconds(after.ru_utime) - Microseconds(before.ru_utime);
  result_.system_us = Microseconds(after.ru_stime) - Microseconds(before.ru_stime);
  records_.erase(records_.begin(),
                 records_.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(measured_from_, next_)));
  result_.records = std::move(records_);
  return std::move(result_);
}

}  // namespace hedgerow::bench
