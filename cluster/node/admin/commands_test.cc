// SPDX-License-Identifier: Apache-2.0
//
// The commands as a user runs them: exit codes, where messages go, JSON also on failure.

#include "cluster/node/admin/commands.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "build_paths.h"
#include "cluster/node/admin/admin_server.h"
#include "cluster/node/testing/fake_node_control.h"
#include "cluster/wire/announce.h"
#include "net/unique_fd.h"
#include "operate/key_file.h"

namespace hedgerow::node {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

struct Outcome {
  int exit_code;
  std::string out;
  std::string err;
};

Outcome Node(const std::vector<std::string>& argv) {
  std::ostringstream out;
  std::ostringstream err;
  const int exit_code = operate::Run(TheProgram(), argv, out, err);
  return {exit_code, out.str(), err.str()};
}

constexpr char kSound[] = "/cluster/node/config/testdata/everything.yaml";

class NodeCommandsTest : public testing::Test {
 protected:
  NodeCommandsTest() {
    char pattern[] = "/tmp/hedgerow-node-commands-test.XXXXXX";
    folder_ = mkdtemp(pattern);
    socket_ = folder_ + "/admin.sock";
    config_ = folder_ + "/n.yaml";
    std::ifstream source(std::string(HEDGEROW_SOURCE_DIR) + kSound);
    std::stringstream text;
    text << source.rdbuf();
    WriteConfig(text.str());
  }
  ~NodeCommandsTest() override {
    server_.reset();
    unlink(config_.c_str());
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "something was left in " << folder_;
  }
  void WriteConfig(const std::string& text) {
    std::ofstream(config_) << text;
    ASSERT_EQ(chmod(config_.c_str(), 0600), 0);
  }
  void Serve() {
    auto server = ServeAdmin(socket_, control_, FakeFacts());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  FakeNodeControl control_;
  std::string folder_;
  std::string socket_;
  std::string config_;
  std::unique_ptr<operate::AdminSocket> server_;
};

TEST_F(NodeCommandsTest, StatusIsTextOrJson) {
  Serve();
  const Outcome text = Node({"status", "--socket", socket_});
  EXPECT_EQ(text.exit_code, kExitOk);
  EXPECT_THAT(text.out, StartsWith("hedgerow-node "));
  EXPECT_THAT(text.out, HasSubstr("this node leads"));
  const Outcome json = Node({"status", "--json", "--socket=" + socket_});
  EXPECT_EQ(json.exit_code, kExitOk);
  EXPECT_THAT(json.out, HasSubstr("\"role\": \"leader\""));
}

TEST_F(NodeCommandsTest, AProbeFailsUntilTheNodeIsReady) {
  Serve();
  NodeStatus status = FakeStatus();
  status.ready = false;
  control_.Set(status);
  EXPECT_EQ(Node({"status", "--socket", socket_}).exit_code, kExitOk);
  EXPECT_EQ(Node({"status", "--ready", "--socket", socket_}).exit_code, kExitFailure);
  status.ready = true;
  control_.Set(status);
  EXPECT_EQ(Node({"status", "--ready", "--socket", socket_}).exit_code, kExitOk);
}

TEST_F(NodeCommandsTest, ABackupThatFailsLeavesNothingBehind) {
  Serve();
  const std::string file = folder_ + "/backup";
  const Outcome refused = Node({"backup", "--socket", socket_, "--out", file});
  EXPECT_EQ(refused.exit_code, kExitFailure);
  EXPECT_EQ(refused.err, "this node gives no backups\n");
  EXPECT_EQ(access(file.c_str(), F_OK), -1);
  EXPECT_EQ(access((file + ".partial").c_str(), F_OK), -1);
  EXPECT_EQ(Node({"backup", "--socket", socket_}).exit_code, kExitUsage);
  EXPECT_EQ(Node({"recover", "--config", config_}).exit_code, kExitUsage) << "of another program";
}

TEST_F(NodeCommandsTest, TransferWaitsUntilAnotherLeads) {
  Serve();
  const Outcome named = Node({"transfer", "--socket", socket_, "--to", "3"});
  EXPECT_EQ(named.exit_code, kExitOk) << named.err;
  EXPECT_EQ(named.out, "node 3 leads in term 5\n");
  control_.Set(FakeStatus());
  const Outcome any = Node({"transfer", "--socket", socket_, "--json"});
  EXPECT_EQ(any.exit_code, kExitOk);
  EXPECT_EQ(any.out, "{\n  \"from\": 1,\n  \"leader\": 2,\n  \"term\": 5\n}\n");
  EXPECT_THAT(control_.targets(), ElementsAre(raft::NodeId(3), raft::NodeId()));
}

TEST_F(NodeCommandsTest, MembersAreListedAndChanged) {
  Serve();
  const Outcome listed = Node({"members", "--socket", socket_});
  EXPECT_EQ(listed.exit_code, kExitOk) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("10.0.0.2:4802"));
  EXPECT_TRUE(control_.changes().empty());
  using Kind = raft::MemberChange::Kind;
  const auto last = [this] { return control_.changes().back(); };
  EXPECT_EQ(Node({"members", "add", "4", "10.0.0.4:4802", "--socket", socket_}).exit_code, kExitOk);
  EXPECT_EQ(last()[0].kind, Kind::kAddLearner);
  EXPECT_EQ(last()[0].address, "10.0.0.4:4802");
  EXPECT_EQ(Node({"members", "replace", "2", "4", "--socket", socket_}).exit_code, kExitOk);
  ASSERT_EQ(last().size(), 2u) << "in one step";
  EXPECT_EQ(last()[0].kind, Kind::kPromote);
  EXPECT_EQ(last()[0].node, raft::NodeId(4));
  EXPECT_EQ(last()[1].node, raft::NodeId(2));
  const Outcome json = Node({"members", "remove", "4", "--socket", socket_, "--json"});
  EXPECT_THAT(json.out, HasSubstr("\"committed_epoch\": 6"));
  const size_t asked = control_.changes().size();
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"add", "4"}, {"remove", "x"}, {"promote", "0"}, {"replace", "1"}, {"expel", "3"}}) {
    std::vector<std::string> words = {"members"};
    words.insert(words.end(), wrong.begin(), wrong.end());
    words.insert(words.end(), {"--socket", socket_});
    EXPECT_EQ(Node(words).exit_code, kExitUsage) << wrong[0];
  }
  EXPECT_EQ(control_.changes().size(), asked);
  control_.FailChanges(absl::FailedPreconditionError("node 2 leads; ask it"));
  const Outcome refused = Node({"members", "remove", "3", "--socket", socket_});
  EXPECT_EQ(refused.exit_code, kExitFailure);
  EXPECT_EQ(refused.err, "node 2 leads; ask it\n");
}

TEST_F(NodeCommandsTest, SettingsAreListedAndChanged) {
  Serve();
  const Outcome listed = Node({"settings", "--socket", socket_});
  EXPECT_EQ(listed.exit_code, kExitOk) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("sessions.timeout       1h         10s to 168h"));
  const Outcome changed =
      Node({"settings", "set", "sessions.timeout=120min", "memcached.memory_mib=64", "--socket", socket_});
  EXPECT_EQ(changed.exit_code, kExitOk) << changed.err;
  EXPECT_THAT(changed.out, HasSubstr("sessions.timeout       2h "));
  EXPECT_THAT(changed.out, HasSubstr("memcached.memory_mib   64 "));
  EXPECT_THAT(changed.out, HasSubstr("version 2\n"));
  EXPECT_THAT(Node({"settings", "--socket", socket_, "--json"}).out, HasSubstr("\"value\": \"2h\""));
}

TEST_F(NodeCommandsTest, ASettingThatMakesNoSenseIsNotAskedFor) {
  Serve();
  const auto error = [this](const std::vector<std::string>& words) {
    std::vector<std::string> all = {"settings"};
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"--socket", socket_});
    const Outcome refused = Node(all);
    EXPECT_NE(refused.exit_code, kExitOk);
    EXPECT_THAT(refused.out, IsEmpty());
    return refused.err;
  };
  EXPECT_THAT(error({"set"}), HasSubstr("settings wants nothing, or set NAME=VALUE ..."));
  EXPECT_THAT(error({"get", "sessions.max"}), HasSubstr("settings wants nothing, or set NAME=VALUE ..."));
  EXPECT_THAT(error({"set", "sessions.maxx=5"}), HasSubstr("did you mean \"sessions.max\"?"));
  EXPECT_EQ(Node({"settings", "set", "sessions.maxx=5", "--socket", socket_}).exit_code, kExitUsage);
  EXPECT_THAT(error({"set", "sessions.max"}),
              HasSubstr("sessions.max: got \"\", expected a whole number between 1 and 1000000"));
  EXPECT_THAT(error({"set", "memcached.window=2s"}),
              HasSubstr("memcached.window: got \"2s\", expected a duration between 3s and 60s, such as 5s"));
  EXPECT_THAT(error({"set", "sessions.max=5", "sessions.max=6"}), HasSubstr("sessions.max is named twice"));
  EXPECT_EQ(control_.Status()->settings_version, 1u);
  control_.FailChanges(absl::FailedPreconditionError("node 2 leads; ask it"));
  EXPECT_EQ(error({"set", "sessions.max=5"}), "node 2 leads; ask it\n");
}

// No majority may answer; the cluster goes on with the change once one does.
TEST_F(NodeCommandsTest, AChangeOfSettingsThatIsNotAppliedInTimeIsNotSaidToBeDone) {
  Serve();
  control_.Stay();
  std::ostringstream out;
  std::ostringstream err;
  const Call call{
      TheProgram(), {.words = {"settings", "set", "sessions.max=5"}, .options = {{"socket", socket_}}}, out, err};
  EXPECT_EQ(RunSettings(call, absl::Milliseconds(50)), kExitFailure);
  EXPECT_THAT(err.str(), HasSubstr("the change was not applied within 50ms"));
}

// What became of a change is told as soon as it is certain, and not after the time in which it might be applied.
TEST_F(NodeCommandsTest, AChangeOfSettingsThatDoesNotHoldSaysWhyAtOnce) {
  Serve();
  const auto ends_as = [this](const std::function<void(NodeStatus&, v1::Setting&)>& fate,
                              const std::string& change = "sessions.max=5") {
    control_.ChangesOfSettingsEndAs([fate](NodeStatus& status) {
      for (v1::Setting& setting : status.settings)
        if (setting.name() == "sessions.max") fate(status, setting);
    });
    const absl::Time begin = absl::Now();
    const Outcome outcome = Node({"settings", "set", change, "--socket", socket_});
    EXPECT_LT(absl::Now() - begin, kSettingsTimeout / 2);
    EXPECT_EQ(outcome.exit_code, kExitFailure);
    EXPECT_THAT(outcome.out, IsEmpty());
    return outcome.err;
  };
  EXPECT_EQ(
      ends_as([](NodeStatus& status, v1::Setting& setting) {
        setting.set_value("7");
        status.settings_version += 2;
      }),
      "sessions.max is 7 and not 5: another change has overwritten this one, and its settings hold, version 3. The log of the leader's node "
      "has each change and its user (`audit:`)\n");
  EXPECT_THAT(ends_as([](NodeStatus&, v1::Setting&) {}, "requests.window=5min"),
              HasSubstr("a window was made longer too often"));
  EXPECT_THAT(
      ends_as([](NodeStatus& status, v1::Setting&) { ++status.settings_version; }, "requests.window=5min"),
      AllOf(HasSubstr("another change has overwritten this one"), HasSubstr("a window was made longer too often")));
  EXPECT_THAT(ends_as([](NodeStatus& status, v1::Setting&) { status.term = status.term.Next(); }),
              HasSubstr("sessions.max is 7 and not 5: this node has lost leadership meanwhile"));
}

// The epoch that it was to have is another change's.
TEST_F(NodeCommandsTest, AChangeThatWasLostWithItsLeaderIsNotSaidToBeDone) {
  Serve();
  EXPECT_EQ(Node({"members", "move", "2", "10.0.0.9:4802", "--socket", socket_}).exit_code, kExitOk);
  control_.LoseChanges();
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"add", "4", "10.0.0.4:4802"}, {"promote", "4"}, {"remove", "2"}, {"move", "3", "10.0.0.8:4802"}}) {
    std::vector<std::string> all = {"members"};
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"--socket", socket_});
    const Outcome lost = Node(all);
    EXPECT_EQ(lost.exit_code, kExitFailure) << words[0];
    EXPECT_THAT(lost.err, HasSubstr("is not what was asked for")) << words[0];
    EXPECT_THAT(lost.out, IsEmpty()) << words[0];
  }
}

TEST_F(NodeCommandsTest, ATransferThatTheNodeRefusesFails) {
  Serve();
  control_.FailTransfers(absl::FailedPreconditionError("node 2 leads; ask it"));
  const Outcome refused = Node({"transfer", "--socket", socket_});
  EXPECT_EQ(refused.exit_code, kExitFailure);
  EXPECT_EQ(refused.err, "node 2 leads; ask it\n");
}

TEST_F(NodeCommandsTest, ATransferThatNoNodeTakesUpFailsAfterAWhile) {
  Serve();
  control_.Stay();
  std::ostringstream out;
  std::ostringstream err;
  const Call call{TheProgram(), {.words = {"transfer"}, .options = {{"socket", socket_}}}, out, err};
  EXPECT_EQ(RunTransfer(call, absl::Milliseconds(100)), kExitFailure);
  EXPECT_THAT(out.str(), IsEmpty());
  EXPECT_THAT(err.str(), HasSubstr("no member has taken over from node 1 within 100ms"));
}

TEST_F(NodeCommandsTest, SnapshotWaitsUntilItIsTaken) {
  Serve();
  const Outcome text = Node({"snapshot", "--socket", socket_});
  EXPECT_EQ(text.exit_code, kExitOk) << text.err;
  EXPECT_EQ(text.out, "the last snapshot is at entry 1042, 4096 bytes\n");
  const Outcome json = Node({"snapshot", "--json", "--socket", socket_});
  EXPECT_EQ(json.out, "{\n  \"index\": 1042,\n  \"size_bytes\": 4096\n}\n");
}

TEST_F(NodeCommandsTest, ASnapshotThatTakesTooLongIsAFailure) {
  Serve();
  control_.Stay();
  std::ostringstream out;
  std::ostringstream err;
  const Call call{TheProgram(), {.words = {"snapshot"}, .options = {{"socket", socket_}}}, out, err};
  EXPECT_EQ(RunSnapshot(call, absl::Milliseconds(100)), kExitFailure);
  EXPECT_THAT(err.str(), HasSubstr("no snapshot at entry 1042 within 100ms"));
}

// As on a full disk; not only after ten minutes.
TEST_F(NodeCommandsTest, ASnapshotThatFailsAtOnceIsAFailureAtOnce) {
  Serve();
  control_.FailSnapshots();
  const Outcome snapshot = Node({"snapshot", "--socket", socket_});
  EXPECT_EQ(snapshot.exit_code, kExitFailure);
  EXPECT_THAT(snapshot.err, HasSubstr("the snapshot failed"));
  control_.Set(FakeStatus());
  const Outcome backup = Node({"backup", "--socket", socket_, "--out", folder_ + "/backup"});
  EXPECT_EQ(backup.exit_code, kExitFailure);
  EXPECT_THAT(backup.err, HasSubstr("the snapshot failed"));
}

// It would go on writing into what the first one has checked and named.
TEST_F(NodeCommandsTest, ASecondBackupToTheSameFileIsRefused) {
  Serve();
  const std::string partial = folder_ + "/backup.partial";
  const net::UniqueFd first(open(partial.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(flock(first.get(), LOCK_EX | LOCK_NB), 0);
  ASSERT_EQ(write(first.get(), "some", 4), 4);
  const Outcome second = Node({"backup", "--socket", socket_, "--out", folder_ + "/backup"});
  EXPECT_EQ(second.exit_code, kExitFailure);
  EXPECT_EQ(second.err, absl::StrCat("another command is writing ", partial, "\n"));
  EXPECT_EQ(std::filesystem::file_size(partial), 4u);
  unlink(partial.c_str());
}

// In a folder that others may write, where the kernel's own protection of sticky folders is none.
TEST_F(NodeCommandsTest, ABackupWritesIntoNoFileThatAnotherUserMadeOrReads) {
  Serve();
  const std::string partial = folder_ + "/backup.partial";
  const std::string victim = folder_ + "/victim";
  const auto refused = [&](const std::string& what) {
    const Outcome outcome = Node({"backup", "--socket", socket_, "--out", folder_ + "/backup"});
    EXPECT_NE(outcome.exit_code, 0) << what;
    EXPECT_THAT(outcome.err, HasSubstr(partial + " is no file that this user alone can read")) << what;
    std::filesystem::remove(partial);
  };
  std::ofstream(victim) << "mine";
  std::filesystem::create_symlink(victim, partial);
  refused("a link");
  std::filesystem::permissions(victim, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::create_hard_link(victim, partial);
  refused("another name of a file");
  EXPECT_EQ(std::filesystem::file_size(victim), 4u);
  std::ofstream(partial).close();
  std::filesystem::permissions(partial, std::filesystem::perms(0644));
  refused("a file that others read");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/backup"));
  unlink(victim.c_str());
}

TEST_F(NodeCommandsTest, ABackupSaysWhatItMayLack) {
  Serve();
  const std::vector<std::string> words = {"backup", "--socket", socket_, "--out", folder_ + "/backup"};
  NodeStatus status = FakeStatus();
  status.leader = raft::NodeId(2);
  status.role = raft::Role::kFollower;
  control_.Set(status);
  EXPECT_THAT(Node(words).err, StartsWith("node 2 leads, and this one follows"));
  status.ready = false;
  control_.Set(status);
  EXPECT_THAT(Node(words).err, StartsWith("WARNING: this node is not ready"));
}

TEST_F(NodeCommandsTest, ANodeThatDoesNotRunIsCode3) {
  const Outcome text = Node({"status", "--socket", socket_});
  EXPECT_EQ(text.exit_code, kExitNotRunning);
  EXPECT_THAT(text.out, IsEmpty());
  EXPECT_THAT(text.err, HasSubstr("hedgerow-node is not running"));
  const Outcome json = Node({"status", "--socket", socket_, "--json"});
  EXPECT_EQ(json.exit_code, kExitNotRunning);
  EXPECT_THAT(json.out, HasSubstr("\"exit_code\": 3"));
  EXPECT_THAT(json.err, IsEmpty());
}

TEST_F(NodeCommandsTest, TheConfigurationNamesTheSocket) {
  WriteConfig(absl::StrCat("cluster_id: 7\ncluster_key: 00112233445566778899aabbccddeeff\nnode: 1\nadmin_socket: ",
                           socket_, "\nmembers: [{id: 1, peer: \"10.0.0.1:4802\", serve: \"10.0.0.1:4801\"}]\n"));
  Serve();
  EXPECT_EQ(Node({"status", "--config", config_}).exit_code, kExitOk);
}

TEST_F(NodeCommandsTest, OnlyANodeThatReportsItselfLostComesBackAsAnother) {
  Serve();
  const Outcome unknown = Node({"members", "rejoin", "9", "7", "--socket", socket_});
  EXPECT_EQ(unknown.err, "node 9 is no member\n");
  const Outcome refused = Node({"members", "rejoin", "2", "7", "--socket", socket_});
  EXPECT_EQ(refused.exit_code, kExitFailure);
  EXPECT_THAT(refused.err, HasSubstr("node 2 has not said within the last seconds that it is LOST"));
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"members", "rejoin", "2"}, {"members", "rejoin", "2", "2"}, {"members", "rejoin", "2", "x"}}) {
    EXPECT_EQ(Node(words).exit_code, kExitUsage) << words.back();
  }
}

// A healthy member is not removed for a slip of the finger.
TEST_F(NodeCommandsTest, ANodeDoesNotComeBackUnderAMembersId) {
  Serve();
  NodeStatus status = FakeStatus();
  status.peers[0].set_lost(true);
  control_.Set(status);
  const Outcome refused = Node({"members", "rejoin", "2", "3", "--socket", socket_});
  EXPECT_EQ(refused.exit_code, kExitFailure);
  EXPECT_THAT(refused.err, HasSubstr("node 3 is a member already"));
  EXPECT_TRUE(control_.changes().empty());
}

TEST_F(NodeCommandsTest, ALostNodeComesBackInTwoChangesAndNotTwice) {
  Serve();
  NodeStatus status = FakeStatus();
  status.peers[0].set_lost(true);
  control_.Set(status);
  const std::vector<std::string> words = {"members", "rejoin", "2", "7", "--socket", socket_};
  const Outcome done = Node(words);
  EXPECT_EQ(done.exit_code, kExitOk) << done.err;
  using Kind = raft::MemberChange::Kind;
  const auto changes = control_.changes();
  ASSERT_EQ(changes.size(), 2u);
  const auto is = [](const raft::MemberChange& change, Kind kind, uint64_t node, const std::string& address) {
    return change.kind == kind && change.node.value() == node && change.address == address;
  };
  ASSERT_EQ(changes[0].size(), 2u) << "in one step";
  EXPECT_TRUE(is(changes[0][0], Kind::kMove, 2, ""));
  EXPECT_TRUE(is(changes[0][1], Kind::kAddLearner, 7, "10.0.0.2:4802"));
  ASSERT_EQ(changes[1].size(), 2u) << "in one step";
  EXPECT_TRUE(is(changes[1][0], Kind::kPromote, 7, ""));
  EXPECT_TRUE(is(changes[1][1], Kind::kRemove, 2, ""));
  EXPECT_EQ(Node(words).exit_code, kExitOk);
  EXPECT_EQ(control_.changes().size(), 2u) << "asked again there is nothing left to do";
}

TEST_F(NodeCommandsTest, PurgeDeletesUntilAWalkFindsNothingMore) {
  Serve();
  control_.SetKeys({"cache/a", "user/a", "cache/b", "cache/c"}, /*loses_one=*/false);
  const Outcome done = Node({"purge", "--prefix", "cache/", "--socket", socket_});
  EXPECT_EQ(done.exit_code, kExitOk) << done.err;
  EXPECT_EQ(done.out, "3 keys deleted\n");
  EXPECT_THAT(control_.keys(), ElementsAre("user/a"));
  control_.SetKeys({"cache/a", "cache/b"}, /*loses_one=*/true);
  EXPECT_EQ(Node({"purge", "--prefix", "cache/", "--socket", socket_}).exit_code, kExitOk);
  EXPECT_THAT(control_.keys(), IsEmpty()) << "what a leader has lost is found by the next walk";
}

TEST_F(NodeCommandsTest, PurgeAsksAgainWhereTheNodesLoopIsLateOrNoNodeLeads) {
  Serve();
  control_.SetKeys({"cache/a", "cache/b"}, /*loses_one=*/false);
  const absl::Status late = absl::DeadlineExceededError("the node's loop did not answer within 2 s");
  // A portion and its wait, more than once each.
  control_.FailNext({late, NotLeading(raft::NodeId()), late});
  const Outcome done = Node({"purge", "--prefix", "cache/", "--socket", socket_});
  EXPECT_EQ(done.exit_code, kExitOk) << done.err;
  EXPECT_THAT(control_.keys(), IsEmpty());
  control_.SetKeys({"cache/a"}, /*loses_one=*/false);
  control_.FailNext({absl::OkStatus(), late, late});
  EXPECT_EQ(Node({"purge", "--prefix", "cache/", "--socket", socket_}).exit_code, kExitOk);
  EXPECT_THAT(control_.keys(), IsEmpty());
}

TEST_F(NodeCommandsTest, ACommandThatWaitsOutlivesALateAnswer) {
  Serve();
  const absl::Status late = absl::DeadlineExceededError("the node's loop did not answer within 2 s");
  control_.FailNext({absl::OkStatus(), late});  // the first is the status before the change
  EXPECT_EQ(Node({"snapshot", "--socket", socket_}).exit_code, kExitOk);
  control_.FailNext({absl::OkStatus(), late});
  EXPECT_EQ(Node({"transfer", "--to", "2", "--socket", socket_}).exit_code, kExitOk);
}

TEST_F(NodeCommandsTest, PurgeWantsAPrefixAndALeader) {
  Serve();
  EXPECT_THAT(Node({"purge", "--socket", socket_}).err, HasSubstr("an empty one names all keys"));
  EXPECT_THAT(Node({"purge", "cache/", "--socket", socket_}).err, HasSubstr("it takes --prefix PREFIX"));
  control_.FailChanges(absl::FailedPreconditionError("node 2 leads; ask it"));
  const Outcome refused = Node({"purge", "--prefix", "cache/", "--socket", socket_});
  EXPECT_EQ(refused.exit_code, kExitFailure);
  EXPECT_THAT(refused.err, HasSubstr("node 2 leads; ask it"));
}

// The file of the cluster's keys, and a configuration that names it.
class NodeKeysCommandsTest : public NodeCommandsTest {
 protected:
  NodeKeysCommandsTest() {
    Write(file_, {kOld});
    Write(next_, {kNew});
    WriteConfig(absl::StrCat("cluster_id: 7\ncluster_key_file: ", file_, "\nnode: 1\nadmin_socket: ", socket_,
                             "\nmembers: [{id: 1, peer: \"10.0.0.1:4802\", serve: \"10.0.0.1:4801\"}]\n"));
    Serve();
  }
  ~NodeKeysCommandsTest() override {
    for (const std::string& path : {file_, next_}) std::filesystem::remove(path);
  }
  static void Write(const std::string& path, const std::vector<std::string>& keys) {
    std::ofstream(path) << absl::StrJoin(keys, "\n") << "\n";
    ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  }
  std::vector<std::string> Keys() const { return *operate::ReadKeyRing(file_, operate::Reader::kShows); }
  // One try, without the wait for what members tell.
  Outcome Run(std::vector<std::string> words, bool force = false) {
    std::ostringstream out, err;
    std::map<std::string, std::string> options = {{"config", config_}};
    if (words.size() > 1 && words[1] == "add") options["from"] = next_;
    if (force) options["force"] = "";
    const int exit_code = RunKeys({TheProgram(), {.words = std::move(words), .options = std::move(options)}, out, err},
                                  absl::ZeroDuration());
    return {exit_code, out.str(), err.str()};
  }

  const std::string kOld = "00112233445566778899aabbccddeeff", kNew = "ffeeddccbbaa99887766554433221100";
  const std::string file_ = folder_ + "/cluster.key", next_ = folder_ + "/next.key";
};

TEST_F(NodeKeysCommandsTest, AKeyIsAddedSwitchedAndTheFormerOneRemoved) {
  EXPECT_EQ(Run({"keys", "add", "cluster"}).exit_code, kExitOk);
  EXPECT_THAT(Keys(), ElementsAre(kOld, kNew)) << "the old one seals";
  struct stat info {};
  ASSERT_EQ(stat(file_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  EXPECT_EQ(Run({"keys", "switch", "cluster"}).exit_code, kExitOk);
  EXPECT_THAT(Keys(), ElementsAre(kNew, kOld));
  const Outcome removed = Run({"keys", "remove", "cluster"});
  EXPECT_EQ(removed.exit_code, kExitOk);
  EXPECT_THAT(Keys(), ElementsAre(kNew));
  EXPECT_THAT(removed.out, HasSubstr("seals with")) << "which keys the members have now";
  EXPECT_THAT(removed.out, testing::Not(HasSubstr(kNew))) << "no key itself";
}

TEST_F(NodeKeysCommandsTest, AStepOutOfTurnChangesNothing) {
  for (const char* step : {"switch", "remove"}) {
    const Outcome refused = Run({"keys", step, "cluster"});
    EXPECT_NE(refused.exit_code, kExitOk);
    EXPECT_THAT(refused.err, HasSubstr("there is one key only: add the next one first"));
  }
  EXPECT_EQ(Run({"keys", "add", "cluster"}).exit_code, kExitOk);
  EXPECT_THAT(Run({"keys", "add", "cluster"}).err,
              HasSubstr("there are two keys already: remove the former one first"));
  EXPECT_THAT(Keys(), ElementsAre(kOld, kNew));
  EXPECT_THAT(Run({"keys", "add", "announce"}).err, HasSubstr("the configuration has no announce_key_file"));
}

TEST_F(NodeKeysCommandsTest, WhatTheNodeRefusesLeavesTheFileAsItWasUnlessForced) {
  ASSERT_EQ(Run({"keys", "add", "cluster"}).exit_code, kExitOk);
  control_.FailChanges(absl::FailedPreconditionError("member 3 does not have the key 1234"));
  const Outcome refused = Run({"keys", "switch", "cluster"});
  EXPECT_EQ(refused.exit_code, kExitFailure);
  EXPECT_THAT(refused.err, HasSubstr("member 3 does not have the key 1234"));
  EXPECT_THAT(Keys(), ElementsAre(kOld, kNew));
  EXPECT_EQ(Run({"keys", "reload"}).exit_code, kExitFailure);
  EXPECT_EQ(Run({"keys", "switch", "cluster"}, /*force=*/true).exit_code, kExitOk);
  EXPECT_THAT(Keys(), ElementsAre(kNew, kOld));
  EXPECT_EQ(Run({"keys", "reload"}, /*force=*/true).exit_code, kExitOk);
}

TEST_F(NodeKeysCommandsTest, OtherWordsAreUsageErrors) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"keys", "change", "cluster"},
                                                                                     {"keys", "switch"},
                                                                                     {"keys", "switch", "client"},
                                                                                     {"keys", "reload", "cluster"}}) {
    EXPECT_EQ(Run(words).exit_code, kExitUsage) << absl::StrJoin(words, " ");
  }
  EXPECT_THAT(Node({"keys", "add", "cluster", "--config", config_}).err, HasSubstr("--from FILE goes with add"));
  EXPECT_THAT(Node({"keys", "switch", "cluster", "--from", next_, "--config", config_}).err,
              HasSubstr("--from FILE goes with add"));
  EXPECT_THAT(Node({"keys", "switch", "cluster", "--socket", socket_}).err,
              HasSubstr("--config FILE is missing: it names the key file"));
  EXPECT_THAT(Keys(), ElementsAre(kOld));
  const Outcome shown = Node({"keys", "--json", "--socket", socket_});
  EXPECT_EQ(shown.exit_code, kExitOk);
  EXPECT_THAT(shown.out, HasSubstr("\"members\""));
}

TEST_F(NodeCommandsTest, ValidateAcceptsASoundFile) {
  const Outcome done = Node({"validate", "--config", config_});
  EXPECT_EQ(done.exit_code, kExitOk) << done.err;
  EXPECT_EQ(
      done.out,
      config_ +
          ": sound (node 1 of 3, 1 proxy)\n"
          "sessions.timeout, sessions.max, memory.limit_mib, memcached.memory_mib, memcached.window, memcached.window_max: only for "
          "a new cluster; `hedgerow-node settings` shows and changes what a running one goes by\n");
  EXPECT_THAT(Node({"validate", "--json", "--config", config_}).out, HasSubstr("\"ok\": true"));
}

TEST_F(NodeCommandsTest, ValidateWarnsWhereTheMemoryIsTooSmallForTheStore) {
  const std::string root = folder_ + "/host";
  std::filesystem::create_directories(root + "/proc/self");
  std::filesystem::create_directories(root + "/sys/fs/cgroup/unit");
  std::ofstream(root + "/proc/self/cgroup") << "0::/unit\n";
  const auto validate = [&](uint64_t host_mib, uint64_t group_mib) {
    std::ofstream(root + "/proc/meminfo") << "MemTotal: " << host_mib * 1024 << " kB\n";
    std::ofstream(root + "/sys/fs/cgroup/unit/memory.max") << group_mib * 1024 * 1024 << "\n";
    std::ostringstream out, err;
    const absl::StatusOr<operate::Arguments> arguments =
        operate::ParseArguments({"validate", "--config", config_}, {"config"}, {});
    EXPECT_EQ(RunValidate({TheProgram(), *arguments, out, err}, root), kExitOk) << "a warning is no error";
    return out.str();
  };
  // The file asks for a store of 1024 MiB, so for three times that and 112 MiB.
  EXPECT_THAT(validate(3184, 3184), testing::Not(HasSubstr("WARNING")));
  EXPECT_THAT(validate(3183, 65536), HasSubstr("WARNING: this node has 3183 MiB of memory"));
  EXPECT_THAT(validate(65536, 1024),
              HasSubstr("WARNING: this node has 1024 MiB of memory, and with a full store of "
                        "`memory.limit_mib` (1024) it may need 3184 MiB: give it more, or set a limit of at most 304"));
  std::filesystem::remove_all(root);
}

TEST_F(NodeCommandsTest, ValidateRefusesWithCode2AndThePlace) {
  WriteConfig("cluster_id: x\nnode: 1\n");
  const Outcome text = Node({"validate", "--config", config_});
  EXPECT_EQ(text.exit_code, kExitUsage);
  EXPECT_THAT(text.err, HasSubstr(config_ + ":1:13: cluster_id: got \"x\""));
  EXPECT_THAT(text.err, HasSubstr("members: the key is missing"));
  const Outcome json = Node({"validate", "--json", "--config", config_});
  EXPECT_EQ(json.exit_code, kExitUsage);
  EXPECT_THAT(json.out, HasSubstr("\"ok\": false"));
  EXPECT_THAT(json.out, HasSubstr("\"column\": 13"));
}

TEST_F(NodeCommandsTest, ProxyKeyPrintsTheDerivedKeyAlone) {
  const std::string key =
      wire::FormatKey(wire::DeriveProxyKey(*wire::ParseKey("ffeeddccbbaa99887766554433221100"), "web1"));
  const Outcome text = Node({"proxy-key", "--config", config_, "web1"});
  EXPECT_EQ(text.exit_code, kExitOk) << text.err;
  EXPECT_EQ(text.out, key + "\n");
  EXPECT_THAT(Node({"proxy-key", "web1", "--config", config_, "--json"}).out, HasSubstr("\"key\": \"" + key + "\""));
}

TEST_F(NodeCommandsTest, ProxyKeyRefusesANameThatGetsNoAnnouncements) {
  const Outcome done = Node({"proxy-key", "--config", config_, "web"});
  EXPECT_EQ(done.exit_code, kExitFailure);
  EXPECT_THAT(done.out, IsEmpty());
  EXPECT_THAT(done.err, HasSubstr("no proxy \"web\""));
  EXPECT_THAT(done.err, HasSubstr("did you mean \"web1\"? (there are: web1)"));
}

TEST(NodeCommands, MisuseIsCode2WithAHint) {
  for (const auto& [argv, hint] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "which command?"},
           {{"statsu"}, "did you mean status?"},
           {{"status", "now"}, "status takes no words"},
           {{"status", "--to", "1"}, "status takes no --to"},
           {{"transfer", "3"}, "transfer takes no words; it takes --to ID"},
           {{"transfer", "--to", "x"}, "--to: got \"x\", expected the id of a member"},
           {{"transfer", "--to", "0"}, "--to: got \"0\""},
           {{"proxy-key"}, "proxy-key wants the name of one proxy"},
           {{"proxy-key", "web1"}, "--config FILE is missing"},
           {{"validate"}, "--config FILE is missing"},
           {{"validate", "--config"}, "--config wants a value"},
           {{"validate", "--config", "a", "--config", "b"}, "--config is given twice"},
           {{"--confg", "x"}, "did you mean --config?"},
           {{"status", "-x"}, "unknown option -x"},
           {{"run"}, "run wants --config FILE and nothing else"},
           {{"help", "nothing"}, "no command nothing"},
       }) {
    const Outcome done = Node(argv);
    EXPECT_EQ(done.exit_code, kExitUsage) << hint;
    EXPECT_THAT(done.out, IsEmpty()) << hint;
    EXPECT_THAT(done.err, HasSubstr(hint));
  }
}

TEST(NodeCommands, HelpListsEveryCommandAndTheDocumentationNamesThem) {
  const Outcome help = Node({"help"});
  EXPECT_EQ(help.exit_code, kExitOk);
  std::ifstream file(std::string(HEDGEROW_SOURCE_DIR) + "/docs/cli.md");
  std::stringstream docs;
  docs << file.rdbuf();
  for (const operate::Command& command : TheProgram().commands) {
    EXPECT_THAT(help.out, HasSubstr("  " + command.name)) << command.name;
    EXPECT_TRUE(absl::StrContains(docs.str(), "| `hedgerow-node " + command.name)) << command.name;
    EXPECT_THAT(Node({command.name, "--help"}).out, StartsWith("usage: hedgerow-node " + command.name)) << command.name;
  }
  EXPECT_EQ(Node({"--help"}).out, help.out);
}

TEST(NodeCommands, VersionsAgree) {
  EXPECT_THAT(Node({"version"}).out, StartsWith("hedgerow-node "));
  EXPECT_EQ(Node({"--version"}).out, Node({"version"}).out);
  EXPECT_THAT(Node({"version", "--json"}).out, HasSubstr("\"version\""));
}

}  // namespace
}  // namespace hedgerow::node
