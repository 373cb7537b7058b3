// SPDX-License-Identifier: Apache-2.0
#include "proxy/start/roster.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bpf/abi/base_abi.h"
#include "bpf/abi/request_abi.h"
#include "net/ip_address.h"
#include "proxy/config/diff.h"

namespace hedgerow {
namespace {

// Flows are stamped once a second, and the clock looks a moment late.
constexpr int64_t kMarginNs = 2'000'000'000;

// The programs know an unanswered request until its deadline, and then for as long as they believe its flow
// (hr_retention_ns in bpf/proxy/clock.bpf.c). Over looks at the request's state as well: this time is for what leaves
// no trace there, such as a packet on its way.
int64_t GraceOf(const v1::Service& service) {
  return service.deadline_ns() + std::max<int64_t>(service.retention_ns(), HR_FLOW_UDP_NS) + kMarginNs;
}

// What a service's requests in flight are judged by, beside its VIP and port.
std::string AnswersAs(const v1::Service& service) {
  v1::Service identity = config::IdentityOf(service);
  identity.clear_vip();
  identity.clear_port();
  return identity.SerializeAsString();
}

// One address may be written in several ways.
std::string Plain(const std::string& address) {
  const auto parsed = net::IpAddress::Parse(address);
  return parsed.ok() ? parsed->ToString() : address;
}

bool IsAt(const v1::RosterBackend& known, const v1::Backend& backend) {
  return known.address() == Plain(backend.address()) && known.port() == backend.port();
}

std::string Endpoint(const std::string& address, uint32_t port) { return absl::StrCat(address, " port ", port); }

template <typename Entry>
bool IsOver(const Entry& entry, int64_t now_ns) {
  return entry.retired_until_ns() != 0 && entry.retired_until_ns() <= now_ns;
}

// The lowest id below `limit` that is not taken; `limit` when all are.
uint32_t LowestFree(const std::set<uint32_t>& taken, uint32_t limit) {
  uint32_t id = 0;
  while (id < limit && taken.contains(id)) ++id;
  return id;
}

class Registrar {
 public:
  Registrar(const v1::Roster& present, const v1::Config& config, DataPlaneRoom room, int64_t now_ns)
      : roster_(present), config_(config), room_(room), now_ns_(now_ns) {}

  absl::StatusOr<v1::Roster> Run() {
    RetireServices();
    for (const v1::Service& service : config_.services()) TakeBack(service);
    for (const v1::Service& service : config_.services()) RetireBackends(service);
    for (const v1::Service& service : config_.services()) Register(service);
    if (reasons_.empty()) return std::move(roster_);
    return absl::FailedPreconditionError(absl::StrJoin(reasons_, "\n"));
  }

 private:
  void RetireServices() {
    for (v1::RosterService& service : *roster_.mutable_services()) {
      const bool wanted = std::any_of(config_.services().begin(), config_.services().end(),
                                      [&](const auto& each) { return each.name() == service.name(); });
      if (wanted || service.retired_until_ns() != 0) continue;
      service.set_retired_until_ns(now_ns_ + service.grace_ns());
      for (v1::RosterBackend& backend : *service.mutable_backends()) {
        if (backend.retired_until_ns() == 0) backend.set_retired_until_ns(service.retired_until_ns());
      }
    }
  }

  // A service that was removed lately and is the same one: its backends may still answer for it.
  void TakeBack(const v1::Service& config) {
    if (Find(config.name()) != nullptr) return;
    for (v1::RosterService& service : *roster_.mutable_services()) {
      if (service.name() != config.name() || service.vip() != Plain(config.vip()) || service.port() != config.port() ||
          service.answers_as() != AnswersAs(config)) {
        continue;
      }
      service.set_retired_until_ns(0);
      return;
    }
  }

  void Register(const v1::Service& config) {
    v1::RosterService* service = Find(config.name());
    if (service == nullptr) {
      std::set<uint32_t> taken;
      for (const v1::RosterService& each : roster_.services()) taken.insert(each.id());
      const uint32_t id = LowestFree(taken, room_.services);
      if (id == room_.services) {
        reasons_.push_back(absl::StrCat("services[", config.name(), "]: there is room for ", room_.services,
                                        " services while the proxy runs, those among them that were removed lately"));
        return;
      }
      service = roster_.add_services();
      service->set_id(id);
      service->set_name(config.name());
    }
    service->set_grace_ns(GraceOf(config));
    service->set_vip(Plain(config.vip()));
    service->set_port(config.port());
    service->set_answers_as(AnswersAs(config));
    for (const v1::Backend& backend : config.backends()) RegisterBackend(config, backend, *service);
  }

  v1::RosterService* Find(const std::string& name) {
    return const_cast<v1::RosterService*>(FindService(roster_, name));
  }

  void RetireBackends(const v1::Service& config) {
    v1::RosterService* service = Find(config.name());
    if (service == nullptr) return;
    for (v1::RosterBackend& backend : *service->mutable_backends()) {
      const bool wanted = std::any_of(config.backends().begin(), config.backends().end(),
                                      [&](const auto& each) { return IsAt(backend, each); });
      if (wanted || backend.retired_until_ns() != 0) continue;
      backend.set_retired_until_ns(now_ns_ + std::max(service->grace_ns(), GraceOf(config)));
    }
  }

  void RegisterBackend(const v1::Service& config, const v1::Backend& backend, v1::RosterService& service) {
    const std::string path = absl::StrCat("services[", config.name(), "].backends[", backend.name(), "]");
    for (v1::RosterBackend& known : *service.mutable_backends()) {
      if (!IsAt(known, backend)) continue;
      known.set_name(backend.name());  // it may have been renamed, or be back
      known.set_retired_until_ns(0);
      return;
    }
    for (const v1::RosterService& other : roster_.services()) {
      for (const v1::RosterBackend& known : other.backends()) {
        if (&other == &service || !IsAt(known, backend)) continue;
        reasons_.push_back(absl::StrCat(path, ": ", Endpoint(backend.address(), backend.port()), " was service ",
                                        other.name(), "'s, whose requests it may still answer for ",
                                        Left(known.retired_until_ns())));
        return;
      }
    }
    std::set<uint32_t> ids, slots;
    for (const v1::RosterService& each : roster_.services()) {
      for (const v1::RosterBackend& known : each.backends()) ids.insert(known.id());
    }
    for (const v1::RosterBackend& known : service.backends()) slots.insert(known.slot());
    const uint32_t id = LowestFree(ids, room_.backends);
    const uint32_t slot = LowestFree(slots, HR_MAX_BACKENDS_PER_SERVICE);
    if (id == room_.backends || slot == HR_MAX_BACKENDS_PER_SERVICE) {
      const uint32_t room = id == room_.backends ? room_.backends : HR_MAX_BACKENDS_PER_SERVICE;
      reasons_.push_back(absl::StrCat(path, ": there is room for ", room, " backends ",
                                      id == room_.backends ? "in all" : "in a service",
                                      " while the proxy runs, those among them that were removed lately"));
      return;
    }
    v1::RosterBackend& added = *service.add_backends();
    added.set_id(id);
    added.set_slot(slot);
    added.set_name(backend.name());
    added.set_address(Plain(backend.address()));
    added.set_port(backend.port());
  }

  // In whole seconds, because durations are written exactly and a finer one helps no reader. The backend stays retired
  // for longer while the programs know a request that it may answer (Over).
  std::string Left(int64_t until_ns) const {
    return absl::StrCat(std::max<int64_t>(until_ns - now_ns_, 0) / 1'000'000'000 + 1, "s");
  }

  v1::Roster roster_;
  const v1::Config& config_;
  const DataPlaneRoom room_;
  const int64_t now_ns_;
  std::vector<std::string> reasons_;
};

}  // namespace

absl::StatusOr<v1::Roster> NextRoster(const v1::Roster& present, const v1::Config& config, DataPlaneRoom room,
                                      int64_t now_ns) {
  return Registrar(present, config, room, now_ns).Run();
}

RosterPart Over(const v1::Roster& roster, int64_t now_ns, const IsKnownFn& is_known) {
  constexpr uint32_t kAllPlaces = (1u << HR_MAX_BACKENDS_PER_SERVICE) - 1;
  RosterPart over;
  for (const v1::RosterService& service : roster.services()) {
    if (IsOver(service, now_ns) && !is_known(service.id(), kAllPlaces)) {
      over.services.push_back(service);
      over.backends.insert(over.backends.end(), service.backends().begin(), service.backends().end());
      continue;
    }
    if (service.retired_until_ns() != 0) continue;  // they go with it
    for (const v1::RosterBackend& backend : service.backends()) {
      if (IsOver(backend, now_ns) && !is_known(service.id(), 1u << backend.slot())) over.backends.push_back(backend);
    }
  }
  return over;
}

v1::Roster Without(const v1::Roster& roster, const RosterPart& part) {
  const auto has = [](const auto& list, uint32_t id) {
    return std::any_of(list.begin(), list.end(), [id](const auto& each) { return each.id() == id; });
  };
  v1::Roster left;
  for (const v1::RosterService& service : roster.services()) {
    if (has(part.services, service.id())) continue;
    v1::RosterService& kept = *left.add_services();
    kept = service;
    kept.clear_backends();
    for (const v1::RosterBackend& backend : service.backends()) {
      if (!has(part.backends, backend.id())) *kept.add_backends() = backend;
    }
  }
  return left;
}

bool AnyRetired(const v1::Roster& roster) {
  const auto is_retired = [](const auto& each) { return each.retired_until_ns() != 0; };
  return std::any_of(roster.services().begin(), roster.services().end(), [&](const v1::RosterService& service) {
    return is_retired(service) || std::any_of(service.backends().begin(), service.backends().end(), is_retired);
  });
}

bool HasVip(const v1::Roster& roster, const std::string& vip) {
  return std::any_of(roster.services().begin(), roster.services().end(),
                     [&](const auto& each) { return each.vip() == vip; });
}

const v1::RosterService* FindService(const v1::Roster& roster, const std::string& name) {
  for (const v1::RosterService& service : roster.services()) {
    if (service.name() == name && service.retired_until_ns() == 0) return &service;
  }
  return nullptr;
}

const v1::RosterBackend* FindBackend(const v1::RosterService& service, const v1::Backend& backend) {
  for (const v1::RosterBackend& known : service.backends()) {
    if (IsAt(known, backend) && known.retired_until_ns() == 0) return &known;
  }
  return nullptr;
}

}  // namespace hedgerow
