// SPDX-License-Identifier: Apache-2.0
//
// The commands that ask the running daemon: status, leader, bypass, down.

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "config/scalar.h"
#include "proxy/admin/client.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "proxy/cli/status_text.h"
#include "net/unique_fd.h"

namespace hedgerow::cli {
namespace {

absl::StatusOr<std::unique_ptr<AdminClient>> Connect(const Arguments& arguments) {
  const absl::StatusOr<std::string> socket = SocketPath(arguments);
  if (!socket.ok()) return socket.status();
  return AdminClient::Connect(*socket);
}

// Until the process is gone, at most `patience`. True: it is.
bool WaitForEnd(pid_t pid, absl::Duration patience) {
  const net::UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid()) return errno == ESRCH;
  pollfd end{.fd = process.get(), .events = POLLIN, .revents = 0};
  return poll(&end, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) > 0;
}

}  // namespace

int RunStatus(const Call& call) {
  if (call.arguments.words.size() > 1) return call.UsageError("status takes no words");
  const auto client = Connect(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const auto status = (*client)->GetStatus();
  if (!status.ok()) return call.Fail(status.status());
  return call.Print(*status, StatusText(*status));
}

int RunLeader(const Call& call) {
  const std::vector<std::string>& words = call.arguments.words;
  const std::string verb = words.size() > 1 ? words[1] : "";
  const bool show = verb == "show" && words.size() <= 3;
  const bool set = verb == "set" && words.size() == 4;
  const bool unset = verb == "unset" && words.size() == 3;
  if (!show && !set && !unset) return call.UsageError("leader wants show, set or unset");
  const auto client = Connect(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  if (show) {
    const auto list = (*client)->LeaderShow(words.size() == 3 ? words[2] : "");
    if (!list.ok()) return call.Fail(list.status());
    std::string text;
    for (const v1::Leader& leader : list->leaders()) text += LeaderText(leader);
    return call.Print(*list, text);
  }
  const auto leader = set ? (*client)->LeaderSet(words[2], words[3]) : (*client)->LeaderUnset(words[2]);
  if (!leader.ok()) return call.Fail(leader.status());
  return call.Print(*leader, LeaderText(*leader));
}

int RunBypass(const Call& call) {
  const std::vector<std::string>& words = call.arguments.words;
  if (words.size() != 3) return call.UsageError("bypass wants a service and on or off");
  if (words[2] != "on" && words[2] != "off") {
    return call.UsageError(absl::StrCat("got \"", words[2], "\", expected on or off"));
  }
  const auto client = Connect(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const auto reply = (*client)->Bypass(words[1], words[2] == "on");
  if (!reply.ok()) return call.Fail(reply.status());
  return call.Print(*reply, absl::StrCat(reply->service(), ": ",
                                         reply->bypass() ? "hedging is off, traffic flows to the leader\n"
                                                         : "hedging is on\n"));
}

int RunDown(const Call& call) {
  if (call.arguments.words.size() > 1) return call.UsageError("down takes no words");
  const auto client = Connect(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const auto reply = (*client)->Down();
  if (!reply.ok()) return call.Fail(reply.status());
  v1::DownReport report;
  report.set_pid(reply->pid());
  report.set_stopped(WaitForEnd(static_cast<pid_t>(reply->pid()), absl::Seconds(20)));
  if (reply->problems_size() > 0) {
    return call.Fail(kExitFailure,
                     absl::StrCat("down, but not everything could be removed (try `hedgerow clean`):\n",
                                  absl::StrJoin(reply->problems(), "\n")));
  }
  if (!report.stopped()) {
    return call.Fail(kExitFailure,
                     absl::StrCat("everything is removed, but pid ", report.pid(), " still runs"));
  }
  return call.Print(report, absl::StrCat("down (pid ", report.pid(), " ended)\n"));
}

}  // namespace hedgerow::cli
