// SPDX-License-Identifier: Apache-2.0
//
// The load engine: one thread that sends requests at their times, reads answers, fires the application's hedges
// and gives up at deadlines. Baseline, application hedging and a hedging proxy all run through this same loop;
// they differ in the hedge policy and in the address, so that a comparison compares hedging and nothing else.
// One thread, because the machines to be measured have two cores: a second thread would take one from the
// servers. Sends never wait for answers: the loop waits only until the next send, hedge or deadline is due.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/load/histogram.h"
#include "bench/load/pacing.h"
#include "bench/load/replica_choice.h"
#include "bench/load/request_window.h"
#include "bench/load/udp_socket.h"
#include "bench/load/workload.h"

namespace hedgerow::bench {

// As the proxy's default budget_burst.
inline constexpr double kHedgeBurst = 50;

struct LoadOptions {
  enum class Loop { kClosed, kOpen };

  Loop loop = Loop::kClosed;
  Address target;
  std::vector<Address> others{};  // Further replicas that the client knows, for second copies and `spread`.
  bool spread = false;            // First copies too go to all of them, to the one with the fewest in flight.
  CopyRule copies{};              // Whether the client sends two copies at once.
  bool hedges = false;            // The client sends a second copy after `hedge_delay_ns` without an answer.
  int64_t hedge_delay_ns = 10'000'000;
  // A hedge costs a token; each request brings this many, and at most kHedgeBurst are kept, of none at first.
  // 0: hedges cost nothing.
  double hedge_budget = 0;
  uint64_t warmup = 0;                                  // Requests sent first and left out of all figures.
  uint64_t requests = 0;                                // Measured requests.
  double rate_per_second = 0;                           // Open loop.
  std::optional<uint64_t> poisson_seed = std::nullopt;  // Open loop: exponential gaps between requests, not equal ones.
  int64_t pause_ns = 0;                                 // Closed loop: between an answer and the next request.
  uint64_t in_flight = 1;                               // Closed loop: requests that wait for an answer at one time.
  int64_t timeout_ns = 1'000'000'000;
  int64_t linger_ns = 0;  // How long to listen on for late and duplicate answers after the last request.
  uint64_t flows = 1;     // Sockets; request i uses socket i % flows.
  std::optional<Address> from = std::nullopt;  // Where the one socket is bound.
  int64_t poll_ahead_ns = 0;  // Open loop: polls so long before a request is due. A timer alone wakes it too late.
  bool keep_records = false;
};

// One measured request. A negative time means "did not happen".
struct RequestRecord {
  uint64_t seq = 0;
  int64_t intended_ns = 0;  // Since the first request of the run.
  int64_t send_lag_ns = 0;
  int64_t latency_ns = -1;  // From the intended time; -1 when lost.
  int64_t fire_error_ns = -1;
  uint8_t winner = 0;
};

struct LoadCounters {
  uint64_t answered = 0;
  uint64_t timeouts = 0;       // Given up at the deadline; with send_errors these are the lost requests.
  uint64_t send_errors = 0;    // Refused by the local kernel; such a request also times out.
  uint64_t hedges = 0;         // Sent by this client after the delay.
  uint64_t copies = 0;         // Sent by this client with the request.
  uint64_t losers = 0;         // Second answers explained by this client's own second copy.
  uint64_t duplicates = 0;     // Second answers that no second copy explains.
  uint64_t late = 0;           // Answers after the deadline.
  uint64_t wrong = 0;          // The right id with the wrong content; of these ...
  uint64_t wrong_waiting = 0;  // ... while the request of that id had no answer yet.
  uint64_t stray = 0;          // Anything else that arrived.
};

struct LoadResult {
  LoadCounters counters;
  Histogram latency;     // From the intended time; a lost request counts as its whole time-out.
  Histogram fire_error;  // Hedge really sent (clock read just before sendto) - due.
  Histogram send_lag;    // Really sent - intended: how far the generator itself was behind.
  int64_t cpu_user_ns = 0;
  int64_t cpu_system_ns = 0;
  int64_t wall_ns = 0;  // From the first measured request to the end of the last.
  std::vector<RequestRecord> records;
};

struct LoadProgress {
  // When the measured part begins and ends: the runner reads the machine's CPU counters at these two.
  enum class Event { kMeasuring, kTick, kMeasured };

  Event event = Event::kTick;
  uint64_t sent = 0;
  uint64_t total = 0;
  uint64_t answered = 0;
  uint64_t timeouts = 0;
  uint64_t hedges = 0;
  uint64_t window_p50_ns = 0;  // Of the answers since the last report.
  uint64_t window_max_ns = 0;
};

class LoadEngine {
 public:
  using ProgressHook = std::function<void(const LoadProgress&)>;

  // `workload` outlives the engine. `progress`, when given, is called about once a second and when the
  // measured part begins and ends.
  static absl::StatusOr<LoadEngine> Make(const LoadOptions& options, Workload* workload, ProgressHook progress);

  // Runs to the end. Bounded: no request lives longer than its time-out.
  LoadResult Run();

 private:
  LoadEngine(const LoadOptions& options, Workload* workload, ProgressHook progress, std::vector<UdpSocket> sockets);

  bool Finished(int64_t now_ns) const;
  bool IsMeasured(uint64_t seq) const { return seq >= options_.warmup; }
  uint64_t total() const { return options_.warmup + options_.requests; }
  int64_t NextSendNs() const;

  void WaitAndReceive();
  void ReceiveFrom(size_t flow);
  void OnDatagram(size_t flow, std::span<const uint8_t> datagram, const Address& peer, int64_t now_ns);
  void FireHedges();
  bool TakeHedgeToken();
  void TakeTimeouts();
  void SendDue();
  void SendBatch(uint64_t first, uint64_t end);
  void Finish(const Request& request, bool answered, int64_t now_ns);
  const Address& TargetAt(size_t place) const { return place == 0 ? options_.target : options_.others[place - 1]; }
  std::optional<size_t> PlaceOf(const Address& peer) const;
  // Requests for one send call, with both copies of each.
  uint64_t MostInBatch() const;
  void AddToBatch(Request& request, size_t place);
  void MarkSent(Request& request, size_t place);
  void OnAnswerFrom(Request& request, size_t place);
  void StartMeasuring();
  void StopMeasuring();
  void ReportProgress(LoadProgress::Event event);

  LoadOptions options_;
  Workload* workload_;
  ProgressHook progress_;
  std::vector<UdpSocket> sockets_;
  std::vector<int> fds_;
  RequestWindow window_;
  ReplicaChoice choice_;
  double hedge_tokens_ = 0;
  Batch receive_batch_;
  Batch send_batch_;
  LoadResult result_;
  Histogram progress_window_;
  Pacing pacing_;
  int64_t start_ns_ = 0;
  int64_t closed_next_send_ns_ = 0;
  int64_t measured_since_ns_ = 0;
  int64_t last_finish_ns_ = 0;
  int64_t next_progress_ns_ = kNeverNs;
};

}  // namespace hedgerow::bench
