// SPDX-License-Identifier: Apache-2.0
//
// A start that fails at any step leaves nothing behind. Descriptors are the
// lever: with one more of them each time, the daemon fails one step later,
// until it serves. Real links, routes and programs, in a network namespace of
// the test's own.

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "build_paths.h"

namespace hedgerow {
namespace {

using testing::HasSubstr;
using testing::Not;

class StartFaults : public testing::Test {
 protected:
  StartFaults() : instance_(absl::StrCat("faults-", getpid() % 100000)) {
    char pattern[] = "/tmp/hedgerow-start-faults.XXXXXX";
    folder_ = mkdtemp(pattern);
    std::ofstream(folder_ + "/c.yaml") << "instance: " << instance_ << "\nadmin: {socket: " << folder_
                                       << "/admin.sock}\nmetrics: {listen: \"127.0.0.1:0\"}\n"
                                       << R"(limits: {requests: 64, parked: 16, flows: 64, fragments: 16}
services:
  - name: dns
    vip: 10.99.0.53
    port: 53
    profile: dns
    backends: [{name: a, address: 10.77.0.11, port: 53}, {name: b, address: 10.77.0.12, port: 53}]
)";
  }
  ~StartFaults() override {
    unlink((folder_ + "/c.yaml").c_str());
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "something was left in " << folder_;
  }

  // Starts the daemon in a fresh namespace with `before` run first, ends it as soon as it serves, and returns
  // everything it said and what the namespace holds then. A shell's background job ignores Ctrl-C unless it is told not
  // to.
  std::string Run(const std::string& before, const std::string& wrapper) const {
    const std::string script = absl::StrCat(
        "set -e; ip link set lo up; ip link add eth0 type veth peer name far; ip link set far up; "
        "ip link set eth0 up; ip address add 10.77.0.1/24 dev eth0; ",
        before, "; set +e; log=", folder_, "/log; env --default-signal=INT timeout 30 ", wrapper, " ",
        HEDGEROW_BUILD_DIR, "/bin/hedgerowd --config ", folder_, "/c.yaml > $log 2>&1 & child=$!; ",
        "while kill -0 $child && ! grep -q \"serves instance\" $log; do sleep 0.02; done 2>/dev/null; ",
        "kill -INT $child 2>/dev/null; wait $child; status=$?; cat $log; rm $log; echo exit=$status; ip -o link; ip route; tc qdisc show; ls /sys/fs/bpf/hedgerow");
    const std::string command = absl::StrCat("unshare --net sh -c '", script, "' 2>&1");
    FILE* pipe = popen(command.c_str(), "r");
    std::string out;
    char buffer[4096];
    while (const size_t got = fread(buffer, 1, sizeof(buffer), pipe)) out.append(buffer, got);
    pclose(pipe);
    return out;
  }
  void ExpectNothingLeft(const std::string& out) const {
    const std::string after = out.substr(out.find("exit="));
    EXPECT_THAT(after, HasSubstr(" eth0"));  // the listing itself worked
    EXPECT_THAT(after, Not(HasSubstr("hr0"))) << out;
    EXPECT_THAT(after, Not(HasSubstr("10.99.0.53"))) << out;
    EXPECT_THAT(after, Not(HasSubstr(instance_))) << out;
    EXPECT_NE(access(absl::StrCat("/run/hedgerow/", instance_, ".lock").c_str(), F_OK), 0);
  }

  std::string instance_;
  std::string folder_;
};

TEST_F(StartFaults, WhateverTheDescriptorLimitNothingIsLeft) {
  bool failed = false;
  bool served = false;
  for (int limit = 20; limit <= 120 && !served; limit += 3) {
    SCOPED_TRACE(absl::StrCat("limit ", limit));
    const std::string out = Run("true", absl::StrCat("prlimit --nofile=", limit));
    ExpectNothingLeft(out);
    served = out.find("serves instance") != std::string::npos;
    if (!served) {
      failed = true;
      EXPECT_THAT(out, HasSubstr("exit=1")) << out;
      EXPECT_THAT(out, HasSubstr(" error ")) << out;
      EXPECT_THAT(out, HasSubstr(absl::StrCat("only ", limit, " files may be open in this process"))) << out;
    }
  }
  EXPECT_TRUE(failed);
  EXPECT_TRUE(served) << "120 descriptors were not enough; raise the sweep's end";
}

TEST_F(StartFaults, ALinkThatIsInTheWayIsNamedAndLeftAlone) {
  for (const std::string& name : std::vector<std::string>{"hr0", "hr0p", "hr0c0", "hr0c1"}) {
    SCOPED_TRACE(name);
    const std::string out = Run(absl::StrCat("ip link add ", name, " type bridge"), "");
    EXPECT_THAT(out, HasSubstr("exit=1"));
    EXPECT_THAT(out, HasSubstr(name));
    const std::string after = out.substr(out.find("exit="));
    std::set<std::string> left;
    for (const absl::string_view line : absl::StrSplit(after, '\n')) {
      for (const absl::string_view word : absl::StrSplit(line, absl::ByAnyChar(" :@"))) {
        if (word.substr(0, 3) == "hr0") left.insert(std::string(word));
      }
    }
    EXPECT_EQ(left, std::set<std::string>{name}) << out;
  }
}

}  // namespace
}  // namespace hedgerow
