// SPDX-License-Identifier: Apache-2.0
//
// The commands that ask the supervisor.
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "config/json.h"
#include "operate/each_second.h"
#include "steer/admin_client.h"
#include "steer/cli/commands.h"
#include "steer/process.h"

namespace hedgerow::steer::cli {
namespace {

using Stub = AdminClient::Stub;

template <typename Request, typename Reply>
absl::StatusOr<Reply> Ask(const Call& call, AdminClient::Method<Request, Reply> method,
                          const std::type_identity_t<Request>& request = {}) {
  const auto places = FindGroup(call.arguments);
  if (!places.ok()) return places.status();
  const auto client = AdminClient::Connect(*places);
  if (!client.ok()) return client.status();
  return client->Ask(method, request);
}

template <typename Request, typename Reply>
int AskAndPrint(const Call& call, AdminClient::Method<Request, Reply> method,
                const std::type_identity_t<Request>& request,
                std::type_identity_t<std::string (*)(const Reply&)> text) {
  const auto reply = Ask(call, method, request);
  return reply.ok() ? call.Print(*reply, text(*reply)) : call.Fail(reply.status());
}

// A command with exactly one word: a slot, or a number of workers.
template <typename Request, typename Reply>
int AskWithNumber(const Call& call, const std::string& what, AdminClient::Method<Request, Reply> method,
                  void (Request::*set)(uint32_t), std::type_identity_t<std::string (*)(const Reply&)> text,
                  Request request = {}) {
  const std::vector<std::string>& words = call.arguments.words;
  uint32_t number = 0;
  if (words.size() != 2) return call.UsageError(absl::StrCat(words[0], " wants ", what));
  if (!absl::SimpleAtoi(words[1], &number))
    return call.UsageError(absl::StrCat("got \"", words[1], "\", expected ", what));
  (request.*set)(number);
  return AskAndPrint(call, method, request, text);
}

// `show --watch`. It connects anew each second, and so survives a change of the supervisor.
class GroupView : public operate::EachSecondView {
 public:
  explicit GroupView(const Call& call) : call_(call) {}

  absl::Status Read() override {
    auto group = Ask(call_, &Stub::Show);
    if (!group.ok()) return group.status();
    group_ = *std::move(group);
    return absl::OkStatus();
  }
  std::vector<operate::Line> Lines(int) const override {
    std::vector<operate::Line> lines;
    for (const absl::string_view line : absl::StrSplit(GroupText(group_), '\n')) {
      lines.push_back(
          {{std::string(line), absl::StartsWith(line, "PROBLEM") ? operate::Mark::kAlarm : operate::Mark::kPlain}});
    }
    return lines;
  }
  void Print() const override { call_.out << (call_.arguments.json() ? ToJsonLine(group_) : GroupText(group_) + "\n"); }

 private:
  const Call& call_;
  v1::Group group_{};
};

int Watch(const Call& call) {
  const operate::EachSecond each_second;
  GroupView view(call);
  if (const absl::Status first = view.Read(); !first.ok()) return call.FailOnALine(first);
  return each_second.Run(call, view, false, "q ends  up, down scroll");
}

int Drain(const Call& call, bool drain) {
  v1::DrainRequest request;
  request.set_drain(drain);
  return AskWithNumber(call, "a slot's number", &Stub::Drain, &v1::DrainRequest::set_slot, ChangeText, request);
}

std::string RestartText(const v1::Slot& slot) {
  return absl::StrCat("slot ", slot.slot(), ": ",
                      slot.state() == "restarting" || slot.state() == "empty"
                          ? slot.last_exit()
                          : absl::StrCat("worker ", slot.pid(), " is asked to end, and another one follows"),
                      "\n");
}

}  // namespace

int RunShow(const Call& call) {
  return call.arguments.Has("watch") ? Watch(call) : AskAndPrint(call, &Stub::Show, {}, GroupText);
}

int RunResize(const Call& call) {
  return AskWithNumber(call, "a number of workers", &Stub::Resize, &v1::ResizeRequest::set_workers, ChangeText);
}

int RunDrain(const Call& call) { return Drain(call, true); }
int RunUndrain(const Call& call) { return Drain(call, false); }

int RunWeights(const Call& call) {
  v1::SetWeightsRequest request;
  for (size_t i = 1; i < call.arguments.words.size(); ++i) {
    double weight = 0;
    if (!absl::SimpleAtod(call.arguments.words[i], &weight)) {
      return call.UsageError(absl::StrCat("got \"", call.arguments.words[i], "\", expected a number"));
    }
    request.add_weights(weight);
  }
  if (request.weights_size() == 0) return call.UsageError("weights wants a number for each slot");
  return AskAndPrint(call, &Stub::SetWeights, request, ChangeText);
}

int RunRestart(const Call& call) {
  return AskWithNumber(call, "a slot's number", &Stub::RestartWorker, &v1::RestartWorkerRequest::set_slot, RestartText);
}

int RunReload(const Call& call) {
  v1::ReloadRequest request;
  if (call.arguments.words.size() > 1) {
    uint32_t slot = 0;
    if (call.arguments.words.size() > 2 || !absl::SimpleAtoi(call.arguments.words[1], &slot))
      return call.UsageError("reload wants a slot's number, or none");
    request.set_slot(slot);
  }
  auto group = Ask(call, &Stub::Reload, request);
  for (; group.ok() && group->reloading(); group = Ask(call, &Stub::Show)) absl::SleepFor(absl::Milliseconds(100));
  if (!group.ok()) return call.Fail(group.status());
  for (const std::string& problem : group->problems()) {
    if (absl::StartsWith(problem, "reload: ")) return call.Fail(kExitFailure, problem);
  }
  return call.Print(*group, GroupText(*group));
}

int RunStop(const Call& call) {
  const auto reply = Ask(call, &Stub::Stop);
  if (!reply.ok()) return call.Fail(reply.status());
  // Workers have --stop-timeout, which the supervisor knows.
  const auto pid = static_cast<pid_t>(reply->pid());
  const auto pidfd = OpenProcess(Identify(pid));
  // In another PID namespace its number is another process's.
  const bool seen = pidfd.ok() && Identify(pid).name == "hedgerow-steer";
  if (seen && !WaitForEnd(*pidfd, -1)) {
    return call.Fail(kExitFailure, absl::StrCat("pid ", reply->pid(), " still runs"));
  }
  return call.Print(*reply, absl::StrCat("stopped (pid ", reply->pid(), ")\n"));
}

}  // namespace hedgerow::steer::cli
