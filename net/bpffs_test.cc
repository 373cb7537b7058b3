// SPDX-License-Identifier: Apache-2.0
//
// The bpffs: mounted when missing, left alone when there, unmounted only when it was ours and is empty.
#include "net/bpffs.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "net/bpf_program_test.h"
#include "net/namespace_test.h"

namespace hedgerow::net {
namespace {

class BpffsTest : public NamespaceTest {
 protected:
  void InFolder(const std::function<void(const std::string&)>& body) {
    InNamespace([&] {
      char directory[] = "/tmp/hedgerow-bpffs-test-XXXXXX";
      ASSERT_NE(mkdtemp(directory), nullptr);
      body(directory);
      umount(directory);
      EXPECT_EQ(rmdir(directory), 0);
    });
  }
};

TEST_F(BpffsTest, MountsOnceAndUnmountsWhenEmpty) {
  InFolder([](const std::string& path) {
    EXPECT_FALSE(*ReleaseBpffs(path)) << "there is nothing to unmount yet";
    auto mounted = EnsureBpffs(path);
    ASSERT_THAT(mounted.status(), IsOk());
    EXPECT_TRUE(*mounted);
    EXPECT_FALSE(*EnsureBpffs(path));
    const auto pins = MakePinDir(path, "one");
    ASSERT_THAT(pins.status(), IsOk());
    ASSERT_THAT(MakePinDir(path, "one").status(), IsOk()) << "making it twice is fine";
    ASSERT_THAT(MakePinDir(path, "two").status(), IsOk());
    struct stat info {};
    ASSERT_EQ(stat(pins->c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    const UniqueFd map = MakeArray("pinned", 1);
    ASSERT_EQ(mkdir((*pins + "/maps").c_str(), 0700), 0);
    ASSERT_EQ(bpf_obj_pin(map.get(), (*pins + "/maps/m").c_str()), 0);
    EXPECT_THAT(*ListPinnedInstances(path), ::testing::UnorderedElementsAre("one", "two"));
    EXPECT_FALSE(*ReleaseBpffs(path)) << "it is not empty";
    EXPECT_THAT(RemovePinDir(path, "one"), IsOk());
    EXPECT_THAT(RemovePinDir(path, "one"), IsOk()) << "removing it twice is fine";
    EXPECT_FALSE(*ReleaseBpffs(path)) << "the other instance is there";
    EXPECT_THAT(RemovePinDir(path, "two"), IsOk());
    EXPECT_FALSE(std::filesystem::exists(path + "/hedgerow"));
    EXPECT_TRUE(*ReleaseBpffs(path));
    EXPECT_FALSE(*ReleaseBpffs(path));
  });
}

// A typing error in a path must not make a folder's files disappear.
TEST_F(BpffsTest, AFolderWithFilesIsNotMountedOver) {
  InFolder([](const std::string& path) {
    ASSERT_EQ(mkdir((path + "/kept").c_str(), 0700), 0);
    EXPECT_THAT(std::string(EnsureBpffs(path).status().message()), ::testing::HasSubstr("is not an empty folder"));
    EXPECT_EQ(rmdir((path + "/kept").c_str()), 0) << "it is there to be seen";
    const std::string file = path + "/file";
    UniqueFd(open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    EXPECT_FALSE(EnsureBpffs(file).ok());
    EXPECT_EQ(unlink(file.c_str()), 0);
  });
}

TEST_F(BpffsTest, ForeignMountIsUsedAndStays) {
  InFolder([](const std::string& path) {
    ASSERT_EQ(mount("bpf", path.c_str(), "bpf", 0, nullptr), 0);
    EXPECT_FALSE(*EnsureBpffs(path));
    ASSERT_THAT(MakePinDir(path, "one").status(), IsOk());
    EXPECT_THAT(RemovePinDir(path, "one"), IsOk());
    EXPECT_FALSE(*ReleaseBpffs(path)) << "it was not ours";
  });
}

// Another user has made the folder first, has it made a link, or may write to it.
TEST_F(BpffsTest, AFolderThatOtherUsersCanChangeIsRefusedByName) {
  InFolder([](const std::string& path) {
    ASSERT_EQ(mount("bpf", path.c_str(), "bpf", 0, "mode=1777"), 0);
    const std::string folder = path + "/hedgerow", instance = folder + "/one";
    const auto expect_refused = [&](const std::string& name) {
      const std::string message(MakePinDir(path, "one").status().message());
      EXPECT_THAT(message, ::testing::StartsWith(name + " "));
      EXPECT_THAT(message, ::testing::HasSubstr("is another user's or can be changed by others"));
    };
    ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
    ASSERT_EQ(chown(folder.c_str(), 65534, 65534), 0);
    expect_refused(folder);
    ASSERT_EQ(chown(folder.c_str(), 0, 0), 0);
    ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
    expect_refused(folder);
    ASSERT_EQ(chmod(folder.c_str(), 01777), 0);
    ASSERT_EQ(mkdir(instance.c_str(), 0700), 0);
    ASSERT_EQ(chown(instance.c_str(), 65534, 65534), 0);
    expect_refused(instance);
    ASSERT_EQ(chmod(folder.c_str(), 01770), 0);
    EXPECT_THAT(MakePinDir(path, "one").status(), IsOk()) << "as an administrator makes it for users of a group";
    EXPECT_THAT(RemovePinDir(path, "one"), IsOk());
    ASSERT_EQ(rmdir(folder.c_str()), 0);
    ASSERT_EQ(symlink("/tmp", folder.c_str()), 0);
    expect_refused(folder);
    ASSERT_EQ(unlink(folder.c_str()), 0);
    ASSERT_EQ(chmod(path.c_str(), 0777), 0);
    EXPECT_THAT(std::string(EnsureBpffs(path).status().message()), ::testing::StartsWith(path + " "));
  });
}

TEST_F(BpffsTest, AFolderThatAnAdministratorMadeForOtherUsersStays) {
  InFolder([](const std::string& path) {
    ASSERT_TRUE(*EnsureBpffs(path));
    const std::string folder = path + "/hedgerow";
    ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
    ASSERT_EQ(chmod(folder.c_str(), 01770), 0);
    ASSERT_THAT(MakePinDir(path, "one").status(), IsOk());
    EXPECT_THAT(RemovePinDir(path, "one"), IsOk());
    EXPECT_TRUE(std::filesystem::exists(folder));
    ASSERT_EQ(rmdir(folder.c_str()), 0);
    EXPECT_TRUE(*ReleaseBpffs(path));
  });
}

TEST_F(BpffsTest, BusyMountStaysWithoutAnError) {
  InFolder([](const std::string& path) {
    ASSERT_TRUE(*EnsureBpffs(path));
    {
      UniqueFd looking(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      const auto released = ReleaseBpffs(path);
      ASSERT_THAT(released.status(), IsOk());
      EXPECT_FALSE(*released);
    }
    EXPECT_TRUE(*ReleaseBpffs(path));
  });
}

TEST_F(BpffsTest, BadPathsAndNamesAreRefused) {
  InFolder([](const std::string& path) {
    EXPECT_TRUE(absl::IsNotFound(EnsureBpffs(path + "/nosuch").status()));
    EXPECT_FALSE(*ReleaseBpffs(path + "/nosuch"));
    for (const char* name : {"", "..", ".", "a/b", "../x"}) {
      EXPECT_TRUE(absl::IsInvalidArgument(MakePinDir(path, name).status())) << name;
      EXPECT_TRUE(absl::IsInvalidArgument(RemovePinDir(path, name))) << name;
    }
    EXPECT_TRUE(ListPinnedInstances(path)->empty());
  });
}

}  // namespace
}  // namespace hedgerow::net
