// SPDX-License-Identifier: Apache-2.0
#include "proxy/admin/controller.h"

#include <unistd.h>

#include "config/suggest.h"
#include "proxy/admin/counts.h"
#include "proxy/data_plane/endpoint.h"
#include "operate/event_loop.h"

namespace hedgerow {
namespace {

constexpr uint64_t kHedgeTestNs = 2'000'000'000;

}  // namespace

absl::StatusOr<int> Controller::FindService(const std::string& name) const {
  if (reader_ == nullptr) return absl::UnavailableError("the daemon is still starting");
  std::vector<std::string> known;
  for (int i = 0; i < config_.services_size(); ++i) {
    if (config_.services(i).name() == name) return i;
    known.push_back(config_.services(i).name());
  }
  return config::NoSuch("service", name, known);
}

absl::StatusOr<Snapshot> Controller::Read(bool histograms) {
  if (reader_ == nullptr) return absl::UnavailableError("the daemon is still starting");
  return reader_->Read(histograms);
}

absl::StatusOr<v1::Status> Controller::Status() {
  const absl::StatusOr<Snapshot> snapshot = Read();
  if (!snapshot.ok()) return snapshot.status();
  return BuildStatus(config_, facts_, *snapshot);
}

absl::StatusOr<v1::Leader> Controller::LeaderOf(int service) {
  const absl::StatusOr<Snapshot> snapshot = Read(/*histograms=*/false);
  if (!snapshot.ok()) return snapshot.status();
  if (service >= static_cast<int>(snapshot->services.size())) {
    return absl::InternalError("the data plane has fewer services than the configuration");
  }
  return BuildLeader(config_.services(service), snapshot->services[service], snapshot->taken_ns);
}

absl::StatusOr<v1::LeaderList> Controller::LeaderShow(const std::string& service) {
  v1::LeaderList list;
  const absl::StatusOr<int> only = service.empty() ? -1 : FindService(service);
  if (!only.ok()) return only.status();
  for (int i = 0; i < config_.services_size(); ++i) {
    if (!service.empty() && i != *only) continue;
    const absl::StatusOr<v1::Leader> leader = LeaderOf(i);
    if (!leader.ok()) return leader.status();
    *list.add_leaders() = *leader;
  }
  return list;
}

absl::StatusOr<v1::Leader> Controller::LeaderSet(const std::string& service, const std::string& backend) {
  const absl::StatusOr<int> index = FindService(service);
  if (!index.ok()) return index.status();
  std::vector<std::string> known;
  for (const v1::Backend& candidate : config_.services(*index).backends()) known.push_back(candidate.name());
  if (std::find(known.begin(), known.end(), backend) == known.end()) return config::NoSuch("backend", backend, known);
  const absl::Status pinned = policy_->PinLeader(service, backend);
  if (!pinned.ok()) return pinned;
  return LeaderOf(*index);
}

absl::StatusOr<v1::Leader> Controller::LeaderUnset(const std::string& service) {
  const absl::StatusOr<int> index = FindService(service);
  if (!index.ok()) return index.status();
  const absl::Status unpinned = policy_->UnpinLeader(service);
  if (!unpinned.ok()) return unpinned;
  return LeaderOf(*index);
}

template <typename Reply>
absl::StatusOr<Reply> Controller::Switch(const std::string& service, bool on, SetSwitch set,
                                         void (Reply::*set_in_reply)(bool)) {
  const absl::StatusOr<int> index = FindService(service);
  if (!index.ok()) return index.status();
  if (const absl::Status status = (policy_->*set)(service, on); !status.ok()) return status;
  Reply reply;
  reply.set_service(service);
  (reply.*set_in_reply)(on);
  return reply;
}

absl::StatusOr<v1::BypassReply> Controller::Bypass(const std::string& service, bool on) {
  return Switch(service, on, &LivePolicy::SetBypass, &v1::BypassReply::set_bypass);
}

absl::StatusOr<v1::DryRunReply> Controller::DryRun(const std::string& service, bool on) {
  return Switch(service, on, &LivePolicy::SetDryRun, &v1::DryRunReply::set_dry_run);
}

absl::StatusOr<v1::DrainReply> Controller::Drain(const std::string& backend, const std::string& service, bool on) {
  if (reader_ == nullptr) return absl::UnavailableError("the daemon is still starting");
  if (!service.empty()) {
    const absl::StatusOr<int> index = FindService(service);
    if (!index.ok()) return index.status();
  }
  std::vector<int> changed;
  std::vector<std::string> known;
  for (int i = 0; i < config_.services_size(); ++i) {
    const v1::Service& candidate = config_.services(i);
    if (!service.empty() && candidate.name() != service) continue;
    for (const v1::Backend& each : candidate.backends()) {
      if (std::find(known.begin(), known.end(), each.name()) == known.end()) known.push_back(each.name());
      if (each.name() != backend) continue;
      const absl::Status set = policy_->SetDrained(candidate.name(), backend, on);
      if (!set.ok()) return set;
      changed.push_back(i);
    }
  }
  if (changed.empty()) return config::NoSuch("backend", backend, known);
  const absl::StatusOr<Snapshot> snapshot = Read(/*histograms=*/false);
  if (!snapshot.ok()) return snapshot.status();
  v1::DrainReply reply;
  for (const int i : changed) {
    *reply.add_backends() = BuildDrained(config_.services(i), snapshot->services.at(static_cast<size_t>(i)), backend);
  }
  return reply;
}

absl::StatusOr<v1::TestHedgeReply> Controller::TestHedge(const v1::TestHedgeRequest& request) {
  if (reader_ == nullptr) return absl::UnavailableError("the daemon is still starting");
  const absl::StatusOr<int> service = FindService(request.service());
  if (!service.ok()) return service.status();
  const auto client = ParseAddress(request.client());
  if (!client.ok()) return client.status();
  if (request.port() == 0 || request.port() > 0xffff) return absl::InvalidArgumentError("a port is 1 to 65535");
  const absl::Status set = policy_->TestHedge(request.service(), *client, static_cast<uint16_t>(request.port()),
                                              static_cast<uint64_t>(MonotonicNs()) + kHedgeTestNs);
  if (!set.ok()) return set;
  return v1::TestHedgeReply();
}

absl::StatusOr<v1::Counts> Controller::Counts() {
  const absl::StatusOr<Snapshot> snapshot = Read();
  if (!snapshot.ok()) return snapshot.status();
  return BuildCounts(config_, facts_, *snapshot, reader_->Programs());
}

absl::StatusOr<std::unique_ptr<TraceSource>> Controller::OpenTrace(const hr_trace_filter& filter) {
  if (reader_ == nullptr) return absl::UnavailableError("the daemon is still starting");
  return reader_->OpenTrace(filter);
}

absl::StatusOr<v1::ReloadReply> Controller::Reload(bool dry_run, const std::string& file) {
  if (reader_ == nullptr) return absl::UnavailableError("the daemon is still starting");
  if (reload_ == nullptr || take_down_ == nullptr) return absl::FailedPreconditionError("the daemon is going down");
  return reload_(dry_run, file);
}

absl::StatusOr<v1::DownReply> Controller::Down() {
  if (reader_ == nullptr) return absl::UnavailableError("the daemon is still starting");
  if (take_down_ == nullptr) return absl::FailedPreconditionError("the daemon is already going down");
  const TakeDown take_down = std::exchange(take_down_, nullptr);
  v1::DownReply reply;
  reply.set_pid(getpid());
  for (const std::string& problem : take_down()) reply.add_problems(problem);
  return reply;
}

}  // namespace hedgerow
