// SPDX-License-Identifier: Apache-2.0
//
// The commands that ask the running daemon: status, leader, bypass, dry-run, drain, undrain, reload, down.

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "net/unique_fd.h"
#include "proxy/admin/client.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "proxy/cli/status_text.h"

namespace hedgerow::cli {
namespace {

using Stub = AdminClient::Stub;

template <typename Request, typename Reply>
absl::StatusOr<Reply> Ask(const Call& call, AdminClient::Method<Request, Reply> method,
                          const std::type_identity_t<Request>& request = {}) {
  const absl::StatusOr<std::string> socket = SocketPath(call.arguments);
  if (!socket.ok()) return socket.status();
  const auto client = AdminClient::Connect(*socket);
  if (client.ok()) return client->Ask(method, request);
  const auto standing = InstancesWithoutDaemon();
  if (!absl::IsUnavailable(client.status()) || !standing.ok() || standing->empty()) return client.status();
  return absl::UnavailableError(
      absl::StrCat(client.status().message(), "\nThe kernel part of ", absl::StrJoin(*standing, ", "),
                   " works on without it: the next daemon takes it over, `hedgerow clean --instance ",
                   standing->front(), "` takes it down"));
}

template <typename Request, typename Reply>
int AskAndPrint(const Call& call, AdminClient::Method<Request, Reply> method,
                const std::type_identity_t<Request>& request,
                std::type_identity_t<std::string (*)(const Reply&)> text) {
  const auto reply = Ask(call, method, request);
  return reply.ok() ? call.Print(*reply, text(*reply)) : call.Fail(reply.status());
}

// A command that switches something of a service on or off.
template <typename Request, typename Reply>
int Switch(const Call& call, AdminClient::Method<Request, Reply> method,
           std::type_identity_t<std::string (*)(const Reply&)> text) {
  const std::vector<std::string>& words = call.arguments.words;
  if (words.size() != 3) return call.UsageError(absl::StrCat(words[0], " wants a service and on or off"));
  if (words[2] != "on" && words[2] != "off") {
    return call.UsageError(absl::StrCat("got \"", words[2], "\", expected on or off"));
  }
  Request request;
  request.set_service(words[1]);
  request.set_on(words[2] == "on");
  return AskAndPrint(call, method, request, text);
}

int Drain(const Call& call, bool on) {
  const std::vector<std::string>& words = call.arguments.words;
  if (words.size() != 2 && words.size() != 3) {
    return call.UsageError(absl::StrCat(words[0], " wants a backend, and perhaps the service it is to leave"));
  }
  v1::DrainRequest request;
  request.set_backend(words[1]);
  if (words.size() == 3) request.set_service(words[2]);
  request.set_on(on);
  return AskAndPrint(call, &Stub::Drain, request, DrainText);
}

// Until the process is gone, at most `patience`. True: it is.
bool WaitForEnd(pid_t pid, absl::Duration patience) {
  const net::UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid()) return errno == ESRCH;
  pollfd end{.fd = process.get(), .events = POLLIN, .revents = 0};
  return poll(&end, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) > 0;
}

}  // namespace

int RunStatus(const Call& call) { return AskAndPrint(call, &Stub::GetStatus, {}, StatusText); }

int RunLeader(const Call& call) {
  const std::vector<std::string>& words = call.arguments.words;
  const std::string verb = words.size() > 1 ? words[1] : "";
  const std::string service = words.size() > 2 ? words[2] : "";
  if (verb == "show" && words.size() <= 3) {
    v1::LeaderShowRequest request;
    request.set_service(service);
    return AskAndPrint(call, &Stub::LeaderShow, request, [](const v1::LeaderList& list) {
      std::string text;
      for (const v1::Leader& leader : list.leaders()) text += LeaderText(leader);
      return text;
    });
  }
  if (verb == "set" && words.size() == 4) {
    v1::LeaderSetRequest request;
    request.set_service(service);
    request.set_backend(words[3]);
    return AskAndPrint(call, &Stub::LeaderSet, request, LeaderText);
  }
  if (verb == "unset" && words.size() == 3) {
    v1::LeaderUnsetRequest request;
    request.set_service(service);
    return AskAndPrint(call, &Stub::LeaderUnset, request, LeaderText);
  }
  return call.UsageError("leader wants show, set or unset");
}

int RunBypass(const Call& call) {
  return Switch(call, &Stub::Bypass, [](const v1::BypassReply& reply) {
    return absl::StrCat(reply.service(), ": ",
                        reply.bypass() ? "hedging is off, traffic flows to the leader\n" : "hedging is on\n");
  });
}

int RunDryRun(const Call& call) {
  return Switch(call, &Stub::DryRun, [](const v1::DryRunReply& reply) {
    return absl::StrCat(
        reply.service(), ": ",
        reply.dry_run() ? "dry run: what would be sent is counted, nothing is sent twice\n" : "hedging is on\n");
  });
}

int RunDrain(const Call& call) { return Drain(call, true); }
int RunUndrain(const Call& call) { return Drain(call, false); }

// The daemon reads its configuration again and goes over to it while it runs; or, with --dry-run, says what that would
// change.
int RunReload(const Call& call) {
  v1::ReloadRequest request;
  request.set_dry_run(call.arguments.Has("dry-run") || call.arguments.Has("preview"));
  std::error_code error;
  if (const std::string file = call.arguments.Get("config"); !file.empty())
    request.set_file(std::filesystem::absolute(file, error).string());
  const auto reply = Ask(call, &Stub::Reload, request);
  if (!reply.ok()) return call.Fail(reply.status());
  const std::string text = ReloadText(*reply, request.dry_run());
  const int code = reply->problems_size() > 0 ? kExitFailure : kExitOk;
  if (code != kExitOk && !call.arguments.json()) return call.Fail(code, text);
  return call.Print(*reply, text, code);
}

int RunDown(const Call& call) {
  const auto reply = Ask(call, &Stub::Down);
  if (!reply.ok()) return call.Fail(reply.status());
  v1::DownReport report;
  report.set_pid(reply->pid());
  report.set_stopped(WaitForEnd(static_cast<pid_t>(reply->pid()), absl::Seconds(20)));
  if (reply->problems_size() > 0) {
    return call.Fail(kExitFailure, absl::StrCat("down, but not everything could be removed (try `hedgerow clean`):\n",
                                                absl::StrJoin(reply->problems(), "\n")));
  }
  if (!report.stopped()) {
    return call.Fail(kExitFailure, absl::StrCat("everything is removed, but pid ", report.pid(), " still runs"));
  }
  return call.Print(report, absl::StrCat("down (pid ", report.pid(), " ended)\n"));
}

}  // namespace hedgerow::cli
