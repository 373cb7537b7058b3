// SPDX-License-Identifier: Apache-2.0
//
// The loop of the load engine. Order within a turn: read what has arrived (an answer already here saves its
// hedge), fire hedges, give up, send what is due, wait.
#include "bench/load/engine.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::bench {
namespace {

constexpr uint64_t kMaxFlows = 64;
constexpr uint64_t kClosedWindow = 1024;
constexpr int64_t kProgressNs = 1'000'000'000;
// The first send waits a moment so that an open loop starts on time instead of already late.
constexpr int64_t kStartDelayNs = 5'000'000;

size_t WindowCapacity(const LoadOptions& options) {
  // Requests begin in order: one that waits long for its answer must not hold up those behind it.
  if (options.loop == LoadOptions::Loop::kClosed)
    return std::max(kClosedWindow, options.in_flight * kClosedWindow / 16);
  // Everything that can be pending, twice over: a generator that was held up sends what it owes in one burst,
  // and a slot that is kept a little longer recognises more late answers.
  const double pending = options.rate_per_second * static_cast<double>(options.timeout_ns) / 1e9;
  return static_cast<size_t>(2 * pending) + 4096;
}

int64_t CpuNs(const timeval& time) { return time.tv_sec * int64_t{1'000'000'000} + time.tv_usec * int64_t{1'000}; }

absl::Status CheckOptions(const LoadOptions& options, const Workload& workload) {
  if (options.requests == 0) return absl::InvalidArgumentError("there must be at least one measured request");
  if (options.flows == 0 || options.flows > kMaxFlows) {
    return absl::InvalidArgumentError(absl::StrCat("sockets must be 1 to ", kMaxFlows, ", not ", options.flows));
  }
  if (options.timeout_ns <= 0) return absl::InvalidArgumentError("the time-out must be positive");
  const bool two_copies = options.hedges || options.copies.at_once != CopyAtOnce::kNever;
  if (two_copies && options.others.empty()) {
    return absl::InvalidArgumentError("a second copy needs a second replica to go to");
  }
  if (options.others.size() >= ReplicaChoice::kMaxReplicas) {
    return absl::InvalidArgumentError(
        absl::StrCat("a client knows at most ", ReplicaChoice::kMaxReplicas, " replicas"));
  }
  if (options.copies.workers == 0 || !(options.copies.idle_below > 0 && options.copies.idle_below <= 1)) {
    return absl::InvalidArgumentError("a replica has workers, and is idle below a share of them, 0 to 1");
  }
  if (!(options.hedge_budget >= 0 && options.hedge_budget <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("the hedge budget is 0 to 1, not ", options.hedge_budget));
  }
  if (options.hedges && options.hedge_delay_ns <= 0) {
    return absl::InvalidArgumentError("the hedge delay must be positive");
  }
  if (options.loop == LoadOptions::Loop::kClosed) {
    // A slot that is kept a little longer recognises late answers.
    const uint64_t most = std::min<uint64_t>(kClosedWindow / 2, workload.IdsPerFlow() * options.flows / 2);
    if (options.in_flight >= 1 && options.in_flight <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("requests in flight must be 1 to ", most, ", not ", options.in_flight));
  }
  if (!(options.rate_per_second > 0 && options.rate_per_second <= 10e6)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the rate must be 0 to 10,000,000/s, not ", options.rate_per_second));
  }
  const double pending_per_flow =
      options.rate_per_second * static_cast<double>(options.timeout_ns) / 1e9 / static_cast<double>(options.flows);
  if (pending_per_flow > 0.9 * static_cast<double>(workload.IdsPerFlow())) {
    return absl::InvalidArgumentError(absl::StrCat("up to ", static_cast<uint64_t>(pending_per_flow),
                                                   " requests may be pending per socket, more than the protocol has "
                                                   "ids for: use more sockets or a shorter time-out"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoadEngine> LoadEngine::Make(const LoadOptions& options, Workload* workload, ProgressHook progress) {
  if (absl::Status status = CheckOptions(options, *workload); !status.ok()) return status;
  std::vector<UdpSocket> sockets;
  for (uint64_t i = 0; i < options.flows; ++i) {
    absl::StatusOr<UdpSocket> socket =
        options.from.has_value() ? UdpSocket::Listen(*options.from) : UdpSocket::Open(options.target);
    if (!socket.ok()) return socket.status();
    sockets.push_back(*std::move(socket));
  }
  return LoadEngine(options, workload, std::move(progress), std::move(sockets));
}

LoadEngine::LoadEngine(const LoadOptions& options, Workload* workload, ProgressHook progress,
                       std::vector<UdpSocket> sockets)
    : options_(options),
      workload_(workload),
      progress_(std::move(progress)),
      sockets_(std::move(sockets)),
      window_(WindowCapacity(options), HedgePolicy{options.hedges, options.hedge_delay_ns}, options.timeout_ns),
      choice_(1 + options.others.size(), options.spread, options.copies),
      pacing_(0, options.loop == LoadOptions::Loop::kOpen ? options.rate_per_second : 1) {
  for (const UdpSocket& socket : sockets_) fds_.push_back(socket.fd());
  if (options_.keep_records) result_.records.reserve(options_.requests);
}

LoadResult LoadEngine::Run() {
  AskForExactTimers();
  start_ns_ = MonotonicNs() + kStartDelayNs;
  closed_next_send_ns_ = start_ns_;
  pacing_ = Pacing(start_ns_, options_.loop == LoadOptions::Loop::kOpen ? options_.rate_per_second : 1);
  if (options_.loop == LoadOptions::Loop::kOpen && options_.poisson_seed.has_value())
    pacing_ = Pacing::Poisson(start_ns_, options_.rate_per_second, total(), *options_.poisson_seed);
  if (progress_) next_progress_ns_ = start_ns_ + kProgressNs;
  while (!Finished(MonotonicNs())) {
    FireHedges();
    TakeTimeouts();
    SendDue();
    WaitAndReceive();
    if (const int64_t now_ns = MonotonicNs(); now_ns >= next_progress_ns_) {
      next_progress_ns_ = now_ns + kProgressNs;
      ReportProgress(LoadProgress::Event::kTick);
    }
  }
  return std::move(result_);
}

bool LoadEngine::Finished(int64_t now_ns) const {
  return window_.next_seq() == total() && window_.pending() == 0 && now_ns >= last_finish_ns_ + options_.linger_ns;
}

int64_t LoadEngine::NextSendNs() const {
  if (window_.next_seq() == total()) return kNeverNs;
  if (options_.loop == LoadOptions::Loop::kOpen) return pacing_.DueNs(window_.next_seq());
  return window_.pending() < options_.in_flight ? closed_next_send_ns_ : kNeverNs;
}

void LoadEngine::WaitAndReceive() {
  const int64_t send_ns = NextSendNs();
  int64_t due_ns = std::min(send_ns == kNeverNs ? send_ns : send_ns - options_.poll_ahead_ns, window_.NextDueNs());
  // Nothing is owed any more: only late answers can come.
  if (due_ns == kNeverNs) due_ns = last_finish_ns_ + options_.linger_ns;
  due_ns = std::min(due_ns, next_progress_ns_);
  std::array<bool, kMaxFlows> readable{};
  WaitReadable(fds_, due_ns, readable);
  for (size_t flow = 0; flow < sockets_.size(); ++flow) {
    if (readable[flow]) ReceiveFrom(flow);
  }
}

// One batch per turn and socket: a flood of answers may not hold up the sends.
void LoadEngine::ReceiveFrom(size_t flow) {
  sockets_[flow].Receive(receive_batch_);
  const int64_t now_ns = MonotonicNs();
  for (size_t i = 0; i < receive_batch_.size(); ++i) {
    OnDatagram(flow, receive_batch_.Bytes(i), receive_batch_.Peer(i), now_ns);
  }
}

void LoadEngine::OnDatagram(size_t flow, std::span<const uint8_t> datagram, const Address& peer, int64_t now_ns) {
  LoadCounters& counters = result_.counters;
  const std::optional<size_t> place = PlaceOf(peer);
  if (!place.has_value()) {
    ++counters.stray;
    return;
  }
  const Decoded decoded = workload_->Decode(datagram, flow, window_.next_seq());
  if (!decoded.reply.empty()) {
    sockets_[flow].SendOne({reinterpret_cast<const uint8_t*>(decoded.reply.data()), decoded.reply.size()}, peer);
    return;
  }
  if (decoded.result == DecodeResult::kStray) {
    ++counters.stray;
    return;
  }
  if (decoded.result == DecodeResult::kWrong) {
    ++counters.wrong;
    const Request* const request = window_.Find(decoded.seq);
    if (request != nullptr && request->state == Request::State::kPending) ++counters.wrong_waiting;
    return;
  }
  if (decoded.load.has_value()) choice_.OnLoad(*place, *decoded.load);
  if (Request* const request = window_.Find(decoded.seq)) OnAnswerFrom(*request, *place);
  const AnswerVerdict verdict = window_.OnAnswer(decoded.seq, static_cast<uint8_t>(*place), now_ns);
  if (verdict == AnswerVerdict::kFirst) {
    Finish(*window_.Find(decoded.seq), true, now_ns);
    return;
  }
  if (!IsMeasured(decoded.seq)) return;
  if (verdict == AnswerVerdict::kLoser) ++counters.losers;
  if (verdict == AnswerVerdict::kDuplicate) ++counters.duplicates;
  // A request whose slot is in use again had its answer or its time-out long ago.
  if (verdict == AnswerVerdict::kLate || verdict == AnswerVerdict::kUnknown) ++counters.late;
}

std::optional<size_t> LoadEngine::PlaceOf(const Address& peer) const {
  for (size_t place = 0; place <= options_.others.size(); ++place) {
    if (peer.SameAs(TargetAt(place))) return place;
  }
  return std::nullopt;
}

void LoadEngine::MarkSent(Request& request, size_t place) {
  request.outstanding |= static_cast<uint8_t>(1 << place);
  choice_.OnSent(place);
}

void LoadEngine::OnAnswerFrom(Request& request, size_t place) {
  const auto bit = static_cast<uint8_t>(1 << place);
  if ((request.outstanding & bit) == 0) return;
  request.outstanding &= static_cast<uint8_t>(~bit);
  choice_.OnAnswered(place);
}

void LoadEngine::FireHedges() {
  std::array<uint8_t, kMaxRequestBytes> bytes;
  while (Request* request = window_.TakeDueHedge(MonotonicNs())) {
    if (!TakeHedgeToken()) continue;
    const size_t size = workload_->Encode(request->seq, bytes);
    // Not where the first copy is, of which no answer came.
    const size_t first = static_cast<size_t>(std::countr_zero(request->outstanding));
    const size_t place = choice_.Other(first).value_or(0);
    const int64_t fired_ns = MonotonicNs();
    const bool sent = sockets_[request->seq % options_.flows].SendOne(std::span(bytes).first(size), TargetAt(place));
    if (sent) {
      window_.MarkHedged(*request, fired_ns);
      MarkSent(*request, place);
    }
    if (!IsMeasured(request->seq)) continue;
    if (!sent) {
      ++result_.counters.send_errors;
      continue;
    }
    ++result_.counters.hedges;
    result_.fire_error.Record(static_cast<uint64_t>(fired_ns - window_.HedgeDueNs(*request)));
  }
}

bool LoadEngine::TakeHedgeToken() {
  if (options_.hedge_budget == 0) return true;
  if (hedge_tokens_ < 1) return false;
  hedge_tokens_ -= 1;
  return true;
}

void LoadEngine::TakeTimeouts() {
  const int64_t now_ns = MonotonicNs();
  while (const Request* request = window_.TakeTimeout(now_ns)) Finish(*request, false, now_ns);
}

void LoadEngine::SendDue() {
  const uint64_t next = window_.next_seq();
  if (next == total()) return;
  const int64_t now_ns = MonotonicNs();
  if (options_.loop == LoadOptions::Loop::kClosed) {
    if (NextSendNs() > now_ns) return;
    const uint64_t room = options_.in_flight - window_.pending();
    SendBatch(next, std::min(next + std::min(room, MostInBatch()), total()));
    return;
  }
  const uint64_t due = std::min(pacing_.DueCount(now_ns), total());
  if (due > next) SendBatch(next, std::min<uint64_t>(due, next + MostInBatch()));
}

uint64_t LoadEngine::MostInBatch() const {
  return options_.copies.at_once == CopyAtOnce::kNever ? Batch::kCapacity : Batch::kCapacity / 2;
}

void LoadEngine::SendBatch(uint64_t first, uint64_t end) {
  if (first <= options_.warmup && options_.warmup < end) StartMeasuring();
  const int64_t now_ns = MonotonicNs();
  uint64_t begun = first;
  for (; begun < end; ++begun) {
    const int64_t intended_ns = options_.loop == LoadOptions::Loop::kOpen ? pacing_.DueNs(begun) : now_ns;
    const uint8_t forgotten = window_.OutstandingBefore(begun);
    // False when the window is full, which takes a generator held up for longer than the time-out: later then.
    if (!window_.Begin(begun, intended_ns, now_ns)) break;
    choice_.OnForgotten(forgotten);
    hedge_tokens_ = std::min(kHedgeBurst, hedge_tokens_ + options_.hedge_budget);
    if (IsMeasured(begun)) result_.send_lag.Record(static_cast<uint64_t>(now_ns - intended_ns));
  }
  const uint64_t flows = options_.flows;
  for (uint64_t flow = 0; flow < std::min(flows, begun - first); ++flow) {
    send_batch_.clear();
    for (uint64_t seq = first + flow; seq < begun; seq += flows) {
      Request& request = *window_.Find(seq);
      const size_t first_place = choice_.First();
      const std::optional<size_t> other =
          options_.copies.at_once == CopyAtOnce::kNever ? std::nullopt : choice_.Other(first_place);
      const bool at_once = other.has_value() && choice_.AtOnce(first_place, *other);
      AddToBatch(request, first_place);
      if (!at_once) continue;
      AddToBatch(request, *other);
      ++request.sends;
      if (IsMeasured(seq)) ++result_.counters.copies;
    }
    const size_t wanted = send_batch_.size();
    result_.counters.send_errors += wanted - sockets_[(first + flow) % flows].Send(send_batch_);
  }
}

void LoadEngine::AddToBatch(Request& request, size_t place) {
  const size_t size = workload_->Encode(request.seq, send_batch_.Next().first<kMaxRequestBytes>());
  send_batch_.Commit(size, TargetAt(place));
  MarkSent(request, place);
}

void LoadEngine::Finish(const Request& request, bool answered, int64_t now_ns) {
  last_finish_ns_ = now_ns;
  closed_next_send_ns_ = now_ns + options_.pause_ns;
  const int64_t end_ns = answered ? now_ns : window_.DeadlineNs(request);
  const int64_t latency_ns = end_ns - request.intended_ns;
  if (progress_ && answered) progress_window_.Record(static_cast<uint64_t>(latency_ns));
  if (!IsMeasured(request.seq)) return;
  ++(answered ? result_.counters.answered : result_.counters.timeouts);
  result_.latency.Record(static_cast<uint64_t>(latency_ns));
  if (options_.keep_records) {
    RequestRecord record{.seq = request.seq,
                         .intended_ns = request.intended_ns - start_ns_,
                         .send_lag_ns = request.sent_ns - request.intended_ns,
                         .latency_ns = answered ? latency_ns : -1,
                         .winner = request.winner};
    if (request.hedge_sent_ns != 0) record.fire_error_ns = request.hedge_sent_ns - window_.HedgeDueNs(request);
    result_.records.push_back(record);
  }
  if (result_.counters.answered + result_.counters.timeouts == options_.requests) StopMeasuring();
}

void LoadEngine::StartMeasuring() {
  ReportProgress(LoadProgress::Event::kMeasuring);
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  result_.cpu_user_ns = -CpuNs(usage.ru_utime);
  result_.cpu_system_ns = -CpuNs(usage.ru_stime);
  measured_since_ns_ = MonotonicNs();
}

void LoadEngine::StopMeasuring() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  result_.cpu_user_ns += CpuNs(usage.ru_utime);
  result_.cpu_system_ns += CpuNs(usage.ru_stime);
  result_.wall_ns = MonotonicNs() - measured_since_ns_;
  ReportProgress(LoadProgress::Event::kMeasured);
}

void LoadEngine::ReportProgress(LoadProgress::Event event) {
  if (!progress_) return;
  const LoadCounters& counters = result_.counters;
  progress_({.event = event,
             .sent = window_.next_seq(),
             .total = total(),
             .answered = counters.answered,
             .timeouts = counters.timeouts,
             .hedges = counters.hedges,
             .window_p50_ns = progress_window_.Quantile(0.5),
             .window_max_ns = progress_window_.max()});
  progress_window_ = Histogram();
}

}  // namespace hedgerow::bench
