// SPDX-License-Identifier: Apache-2.0
//
// What is pinned can be taken over, and nothing else is: another layout, a pin
// that is gone, a pin of another map. A record survives a writer that dies. On
// real maps and programs, on a bpffs of the test's own.

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "net/fnv.h"
#include "net/bpffs.h"
#include "proxy/kernel_part/kernel_data_plane.h"
#include "proxy/kernel_part/map_layout.h"
#include "proxy/kernel_part/record_map.h"
#include "proxy/profiles/profile_test.h"
#include "proxy.skel.h"

int histogram_copies = 0;

// In place of libbpf's, to count.
extern "C" int bpf_map_lookup_elem(int fd, const void* key, void* value) {
  static const auto real = reinterpret_cast<int (*)(int, const void*, void*)>(dlsym(RTLD_NEXT, "bpf_map_lookup_elem"));
  bpf_map_info info{};
  uint32_t bytes = sizeof(info);
  if (bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0 && info.value_size == sizeof(hr_histogram)) ++histogram_copies;
  return real(fd, key, value);
}

namespace hedgerow {
namespace {

using testing::HasSubstr;

class PinnedTest : public testing::Test {
 protected:
  PinnedTest() {
    char pattern[] = "/tmp/hedgerow-pinned-test.XXXXXX";
    mount_ = mkdtemp(pattern);
    EXPECT_TRUE(net::EnsureBpffs(mount_).ok());
    folder_ = net::MakePinDir(mount_, "pinned-test").value();
  }
  ~PinnedTest() override {
    EXPECT_TRUE(net::RemovePinDir(mount_, "pinned-test").ok());
    EXPECT_TRUE(net::ReleaseBpffs(mount_).ok());
    EXPECT_EQ(rmdir(mount_.c_str()), 0);
  }
  std::string mount_;
  std::string folder_;
};

// -- the record ----------------------------------------------------------------------------------------------

TEST_F(PinnedTest, ARecordIsReadBackByAnotherProcessesOpen) {
  const std::string path = folder_ + "/record";
  {
    auto record = RecordMap::Create(path);
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_EQ(record->Read().status().code(), absl::StatusCode::kNotFound);
    for (const char* text : {"first", "second", "", "the last one"}) {
      ASSERT_TRUE(record->Write(text).ok());
      EXPECT_EQ(record->Read().value(), text);
    }
  }
  const auto again = RecordMap::Open(path);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->Read().value(), "the last one");
  EXPECT_FALSE(RecordMap::Create(path).ok());
}

TEST_F(PinnedTest, AWriterThatDiesLeavesTheTextBefore) {
  const std::string path = folder_ + "/record";
  auto record = RecordMap::Create(path);
  ASSERT_TRUE(record.ok());
  ASSERT_TRUE(record->Write("old").ok());
  ASSERT_TRUE(record->Write("new").ok());
  // A byte of the newer half is not the one that was written.
  auto memory = PinnedArray::Open(path, {"hr_record", 4096, 2 * RecordMap::kFirstHalfBytes / 4096});
  ASSERT_TRUE(memory.ok()) << memory.status();
  volatile char* newer = memory->At<char>(0) + RecordMap::kFirstHalfBytes + 32;
  ASSERT_EQ(*newer, 'n');
  *newer = 'N';
  EXPECT_EQ(record->Read().value(), "old");
  ASSERT_TRUE(record->Write("newest").ok());
  EXPECT_EQ(record->Read().value(), "newest");
}

TEST_F(PinnedTest, ARecordOfAnyLengthIsReadBackAndAForeignMapIsRefused) {
  const std::string path = folder_ + "/record";
  {
    auto record = RecordMap::Create(path);
    ASSERT_TRUE(record.ok());
    ASSERT_TRUE(PinnedArray::Create(path + "-larger", {"half_made", 8, 4}).ok()) << "by a daemon killed meanwhile";
    for (const size_t bytes :
         {RecordMap::kFirstHalfBytes - 32, RecordMap::kFirstHalfBytes, 9 * RecordMap::kFirstHalfBytes, size_t{7}}) {
      EXPECT_TRUE(record->Write(std::string(bytes, 'x')).ok()) << bytes;
      EXPECT_EQ(record->Read().value(), std::string(bytes, 'x'));
      EXPECT_EQ(RecordMap::Open(path)->Read().value(), std::string(bytes, 'x')) << "by another process";
    }
    EXPECT_NE(access((path + "-larger").c_str(), F_OK), 0);
  }
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(RecordMap::Open(path).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(PinnedArray::Create(path, {"somebodys", 8, 4}).ok());
  EXPECT_EQ(RecordMap::Open(path).status().code(), absl::StatusCode::kFailedPrecondition);
}

// -- the data plane ------------------------------------------------------------------------------------------

DataPlaneSpec Spec() {
  DataPlaneSpec spec;
  ServiceSpec service;
  service.name = "dns";
  service.vip = "10.99.0.53";
  service.port = 53;
  service.config.profile = BuiltInProfile("dns");
  service.config.delay_ns = 10'000'000;
  service.config.deadline_ns = service.config.retention_ns = 1'000'000'000;
  service.backends = {{"a", "10.77.0.11", 53, 1, 0}, {"b", "10.77.0.12", 53, 1, 0}};
  spec.services = {service};
  spec.max_requests = spec.max_parked = spec.max_flows = spec.max_connections = spec.max_fragments = 64;
  spec.proxy_ifindex = spec.clock_out_ifindex = spec.clock_in_ifindex = 1;
  return spec;
}

TEST(KernelReader, CopiesAHistogramOnlyWhenSomethingMayHaveComeToIt) {
  auto plane = KernelDataPlane::Load(Spec());
  ASSERT_TRUE(plane.ok()) << plane.status();
  const auto& maps = (*plane)->object().skeleton()->maps;
  const auto copied = [&] {
    histogram_copies = 0;
    EXPECT_TRUE((*plane)->reader().Read(true).ok());
    return histogram_copies;
  };
  const auto cpus = static_cast<size_t>(libbpf_num_possible_cpus());
  EXPECT_EQ(copied(), 2 + 2 * 3) << "the service's and each backend's";
  EXPECT_EQ(copied(), 2 + 2 * 3) << "what was recorded while they were read";
  EXPECT_EQ(copied(), 0);
  std::vector<hr_stats> tests(cpus);
  tests[0].counters[HR_SELF_TESTS] = 1;
  const uint32_t service = 0;
  ASSERT_EQ(bpf_map_update_elem(bpf_map__fd(maps.stats), &service, tests.data(), BPF_ANY), 0);
  EXPECT_EQ(copied(), 0) << "self-tests come each second";
  tests[0].counters[HR_WON_BY_FIRST] = 1;
  ASSERT_EQ(bpf_map_update_elem(bpf_map__fd(maps.stats), &service, tests.data(), BPF_ANY), 0);
  EXPECT_EQ(copied(), 2);
  EXPECT_EQ(copied(), 2);
  // An answer of backend 1: each way by which one shows.
  std::vector<hr_histogram> times(cpus);
  times[0].buckets[7] = 1;
  const uint32_t answers = 1 * HR_BACKEND_HISTOGRAMS + HR_HISTOGRAM_ANSWERS, backend = 1;
  ASSERT_EQ(bpf_map_update_elem(bpf_map__fd(maps.backend_histograms), &answers, times.data(), BPF_ANY), 0);
  (*plane)->object().memory().backend_states.At<hr_backend_state>(backend)->last_receive_ns = 4711;
  histogram_copies = 0;
  EXPECT_EQ((*plane)->reader().Read(true)->services[0].backends[1].answer_times.Count(), 1u);
  EXPECT_EQ(histogram_copies, 3);
  EXPECT_EQ(copied(), 3);
  std::vector<hr_backend_stats> counts(cpus);
  counts[0].counters[HR_BACKEND_UNANSWERED] = 1;
  ASSERT_EQ(bpf_map_update_elem(bpf_map__fd(maps.backend_stats), &backend, counts.data(), BPF_ANY), 0);
  EXPECT_EQ(copied(), 3);
  EXPECT_EQ(copied(), 3);
  EXPECT_EQ((*plane)->reader().Read(true)->services[0].backends[1].answer_times.Count(), 1u) << "as kept";
}

class AdoptTest : public PinnedTest {
 protected:
  // A daemon that has come and gone; `leader set dns b` was said to it.
  void Leave() {
    auto plane = KernelDataPlane::Load(Spec());
    ASSERT_TRUE(plane.ok()) << plane.status();
    ASSERT_TRUE((*plane)->policy().PinLeader("dns", "b").ok());
    (*plane)->policy().HedgeUntil(4711);
    ASSERT_TRUE((*plane)->object().PinMaps(folder_).ok());
    ASSERT_TRUE((*plane)->object().PinPrograms(programs()).ok());
    ASSERT_TRUE((*plane)->object().Describe(pinned_).ok());
  }
  absl::StatusOr<std::unique_ptr<KernelDataPlane>> Adopt(const DataPlaneSpec& spec = Spec()) {
    return KernelDataPlane::Adopt(spec, folder_, programs(), pinned_);
  }
  void ExpectRefused(const std::string& why) {
    const auto plane = Adopt();
    EXPECT_EQ(plane.status().code(), absl::StatusCode::kFailedPrecondition) << plane.status();
    EXPECT_THAT(std::string(plane.status().message()), HasSubstr(why));
  }
  std::string programs() const { return folder_ + "/programs-1"; }
  std::string MapPin(const std::string& name) const { return absl::StrCat(folder_, "/map-", name); }
  v1::PinnedMapRecord& Recorded(const std::string& name) {
    for (v1::PinnedMapRecord& map : *pinned_.mutable_maps()) {
      if (map.name() == name) return map;
    }
    ADD_FAILURE() << "no map " << name;
    return *pinned_.mutable_maps(0);
  }
  v1::KernelRecord pinned_;
};

TEST_F(AdoptTest, TheSameBuildTakesMapsAndProgramsAsTheyAre) {
  ASSERT_NO_FATAL_FAILURE(Leave());
  const auto plane = Adopt();
  ASSERT_TRUE(plane.ok()) << plane.status();
  EXPECT_FALSE((*plane)->object().has_new_programs());
  const auto snapshot = (*plane)->reader().Read(true);
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->services[0].leader.leader, 1);
  EXPECT_EQ(snapshot->services[0].leader.pinned, 1);
  EXPECT_EQ(snapshot->hedge_until_ns, 4711u);
  // The control program was taken over, too.
  EXPECT_TRUE((*plane)->policy().UnpinLeader("dns").ok());
  EXPECT_EQ((*plane)->reader().Read(false)->services[0].leader.leader, 0);
  v1::KernelRecord again;
  ASSERT_TRUE((*plane)->object().Describe(again).ok());
  ASSERT_EQ(again.maps_size(), pinned_.maps_size());
  for (int i = 0; i < again.maps_size(); ++i) {
    EXPECT_EQ(again.maps(i).id(), pinned_.maps(i).id());
    EXPECT_EQ(again.maps(i).layout(), pinned_.maps(i).layout()) << again.maps(i).name();
  }
}

TEST_F(AdoptTest, AnotherBuildBringsItsProgramsToTheSameMaps) {
  ASSERT_NO_FATAL_FAILURE(Leave());
  pinned_.set_build(pinned_.build() + 1);
  const auto plane = Adopt();
  ASSERT_TRUE(plane.ok()) << plane.status();
  EXPECT_TRUE((*plane)->object().has_new_programs());
  EXPECT_EQ((*plane)->reader().Read(true)->services[0].leader.leader, 1);
  EXPECT_TRUE((*plane)->policy().UnpinLeader("dns").ok());
  v1::KernelRecord again;
  ASSERT_TRUE((*plane)->object().Describe(again).ok());
  EXPECT_EQ(again.hash_seed(), pinned_.hash_seed()) << "requests in flight are found by it";
}

TEST_F(AdoptTest, OtherConstantsTakeOtherPrograms) {
  ASSERT_NO_FATAL_FAILURE(Leave());
  DataPlaneSpec spec = Spec();
  spec.services[0].cluster = ClusterSpec{.id = 7, .keys = {{1, 2}}, .epoch = 0, .announce_port = 4803};
  const auto plane = Adopt(spec);
  ASSERT_TRUE(plane.ok()) << plane.status();
  EXPECT_TRUE((*plane)->object().has_new_programs());
}

TEST_F(AdoptTest, AProgramWhosePinIsGoneIsLoadedAnew) {
  ASSERT_NO_FATAL_FAILURE(Leave());
  ASSERT_EQ(unlink(absl::StrCat(programs(), "/hr_control").c_str()), 0);
  const auto plane = Adopt();
  ASSERT_TRUE(plane.ok()) << plane.status();
  EXPECT_TRUE((*plane)->object().has_new_programs());
}

TEST_F(AdoptTest, AnotherLayoutIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Leave());
  pinned_.set_abi_version(HR_ABI_VERSION + 1);
  ExpectRefused(absl::StrCat("layout ", HR_ABI_VERSION + 1));
  pinned_.set_abi_version(HR_ABI_VERSION);
  Recorded("requests").set_layout(Recorded("requests").layout() + 1);
  ExpectRefused("requests has another layout");
  Recorded("requests").set_layout(Recorded("requests").layout() - 1);
  EXPECT_TRUE(Adopt().ok());
}

TEST_F(AdoptTest, OtherSizesAreRefused) {
  ASSERT_NO_FATAL_FAILURE(Leave());
  DataPlaneSpec spec = Spec();
  spec.max_flows = 128;
  const auto plane = Adopt(spec);
  EXPECT_THAT(std::string(plane.status().message()), HasSubstr("flows has 64 entries"));
}

TEST_F(AdoptTest, AMissingPinIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Leave());
  ASSERT_EQ(unlink(MapPin("scoreboard").c_str()), 0);
  ExpectRefused("map-scoreboard");
}

TEST_F(AdoptTest, APinOfAnotherMapIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Leave());
  // Of the very same shape, even: its number gives it away.
  auto other = KernelDataPlane::Load(Spec());
  ASSERT_TRUE(other.ok());
  ASSERT_EQ(unlink(MapPin("flows").c_str()), 0);
  ASSERT_EQ(bpf_obj_pin(bpf_map__fd((*other)->object().skeleton()->maps.flows), MapPin("flows").c_str()), 0);
  ExpectRefused("map-flows is another map");
}

TEST_F(AdoptTest, AMapThatOnlyTheNewerBuildHasIsMadeAndPinned) {
  ASSERT_NO_FATAL_FAILURE(Leave());
  pinned_.set_build(pinned_.build() + 1);
  const auto is_new = [](const v1::PinnedMapRecord& map) { return map.name() == "fragments"; };
  pinned_.mutable_maps()->erase(std::find_if(pinned_.maps().begin(), pinned_.maps().end(), is_new));
  // Also where an upgrade that was cut short has left one.
  const auto plane = Adopt();
  ASSERT_TRUE(plane.ok()) << plane.status();
  ASSERT_TRUE((*plane)->object().PinMaps(folder_).ok());
  ASSERT_TRUE((*plane)->object().Describe(pinned_).ok());
  EXPECT_NE(Recorded("fragments").id(), 0u);
  EXPECT_TRUE(Adopt().ok());
}

// -- layouts -------------------------------------------------------------------------------------------------

// A struct of one or two members, the first of them named `first`.
uint64_t LayoutWith(const char* first, bool second) {
  btf* types = btf__new_empty();
  const int number = btf__add_int(types, "u32", 4, 0);
  const int wide = btf__add_int(types, "u64", 8, 0);
  const int type = btf__add_struct(types, "thing", 16);
  EXPECT_EQ(btf__add_field(types, first, number, 0, 0), 0);
  if (second) {
    EXPECT_EQ(btf__add_field(types, "more", wide, 64, 0), 0);
  }
  const uint64_t layout = net::Fnv1a64(DescribeType(types, static_cast<uint32_t>(type)));
  btf__free(types);
  return layout;
}

TEST(MapLayout, TellsNamesAndMembersApart) {
  EXPECT_EQ(LayoutWith("a", false), LayoutWith("a", false));
  EXPECT_NE(LayoutWith("a", false), LayoutWith("b", false));
  EXPECT_NE(LayoutWith("a", false), LayoutWith("a", true));
}

}  // namespace
}  // namespace hedgerow
