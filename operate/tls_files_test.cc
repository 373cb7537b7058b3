// SPDX-License-Identifier: Apache-2.0
#include "operate/tls_files.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "operate/tls_testing.h"

namespace hedgerow::operate {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kName = "node-1.hedgerow";
constexpr int64_t kDay_s = 86'400;

class TlsFilesTest : public ::testing::Test {
 protected:
  TlsFilesTest() : folder_(::testing::TempDir() + "tls-" + std::to_string(getpid())) {}
  ~TlsFilesTest() override { std::filesystem::remove_all(folder_); }

  std::string Error(Reader reader = Reader::kServes) {
    return std::string(ReadTlsMaterial(paths_, kName, reader).status().message());
  }

  TlsFiles Open() {
    return TlsFiles(paths_, kName, *ReadTlsMaterial(paths_, kName, Reader::kServes), absl::InfiniteDuration());
  }

  const std::string folder_;
  const TestAuthority authority_{"the cluster's authority"};
  const TlsPaths paths_ = WriteTlsFiles(folder_, authority_.Sign("Node-1.Hedgerow"), authority_.Pem());
};

TEST_F(TlsFilesTest, WhatFitsTogetherIsRead) {
  const absl::StatusOr<TlsMaterial> material = ReadTlsMaterial(paths_, kName, Reader::kServes);
  ASSERT_TRUE(material.ok()) << material.status();
  EXPECT_THAT(material->names, ElementsAre("node-1.hedgerow"));
  EXPECT_TRUE(material->IsFor("NODE-1.hedgerow"));
  EXPECT_FALSE(material->IsFor("node-2.hedgerow"));
  EXPECT_NEAR(static_cast<double>(material->not_after_s - time(nullptr)), 3600, 60);
}

TEST_F(TlsFilesTest, AWeekBeforeItsEndACertificateSaysSo) {
  EXPECT_EQ(CertificateEndText(7 * kDay_s, 0), "");
  EXPECT_EQ(CertificateEndText(7 * kDay_s - 1, 0), "ends in 6 days");
  EXPECT_EQ(CertificateEndText(10 * kDay_s, 7 * kDay_s), "ends in 3 days");
  EXPECT_EQ(CertificateEndText(2 * kDay_s - 1, 0), "ends in 1 day");
  EXPECT_EQ(CertificateEndText(kDay_s - 1, 0), "ends in less than a day");
  EXPECT_EQ(CertificateEndText(1, 0), "ends in less than a day");
  EXPECT_EQ(CertificateEndText(kDay_s, kDay_s), "has ended");
  EXPECT_EQ(CertificateEndText(10 * kDay_s, 11 * kDay_s), "has ended");
}

TEST_F(TlsFilesTest, WhatAnOperatorHasToDoIsSaid) {
  const TestCertificate used = authority_.Sign(kName, 30 * kDay_s);
  WriteTlsFiles(folder_, used, authority_.Pem());
  TlsFiles files = Open();
  const int64_t ends_s = files.current()->not_after_s;
  EXPECT_EQ(files.Problem(ends_s - 7 * kDay_s), "");
  const std::string ends =
      "the certificate that is in use ends in 6 days: put the next one and its key into " + paths_.certificate;
  EXPECT_THAT(files.Problem(ends_s - 7 * kDay_s + 1), StartsWith(ends));
  WriteTlsFile(paths_.certificate, "none", 0644);
  files.Get();
  EXPECT_THAT(files.Problem(0),
              AllOf(StartsWith("the former certificates are in use, because the file " + paths_.certificate),
                    Not(HasSubstr(ends))));
  EXPECT_THAT(files.Problem(ends_s - 7 * kDay_s + 1),
              AllOf(StartsWith("the former certificates are in use"), HasSubstr("; " + ends)));
  WriteTlsFiles(folder_, authority_.Sign(kName, 60 * kDay_s), authority_.Pem());
  files.Get();
  EXPECT_EQ(files.Problem(ends_s), "");
}

TEST_F(TlsFilesTest, EachCertificateOfAFileIsRead) {
  const std::string between = TestAuthority("between").Pem();
  const TestCertificate own = authority_.Sign(kName);
  WriteTlsFiles(folder_, {.certificate = own.certificate + "a comment\n" + between, .key = own.key},
                authority_.Pem() + between);
  EXPECT_EQ(Error(), "");
  // As an editor, or a copy that ended early, leaves them.
  const std::string half = between.substr(0, between.size() / 2);
  std::string changed = between, without_first_line = between.substr(between.find('\n') + 1);
  changed[changed.size() / 2] = '!';
  for (const std::string& bad : {half, changed, without_first_line}) {
    WriteTlsFile(paths_.certificate, own.certificate + bad, 0644);
    EXPECT_THAT(Error(), HasSubstr(paths_.certificate + " holds a certificate that cannot be read, after 1 that can"))
        << bad;
    WriteTlsFile(paths_.certificate, own.certificate, 0644);
    WriteTlsFile(paths_.authority, authority_.Pem() + bad, 0644);
    EXPECT_THAT(Error(), HasSubstr(paths_.authority + " holds a certificate that cannot be read, after 1 that can"))
        << bad;
    WriteTlsFile(paths_.authority, authority_.Pem(), 0644);
  }
}

TEST_F(TlsFilesTest, WhatTlsRefusesIsRefusedBefore) {
  WriteTlsFiles(folder_, authority_.SignShort(kName), authority_.Pem());
  EXPECT_THAT(Error(), HasSubstr(paths_.certificate + " cannot be used for TLS: ee key too small"));
}

TEST_F(TlsFilesTest, AnErrorNamesTheFileAndWhatToDo) {
  WriteTlsFile(paths_.key, authority_.Sign("node-1.hedgerow").key);
  EXPECT_THAT(Error(), HasSubstr(paths_.key + " is not the key of the certificate in " + paths_.certificate));
  WriteTlsFile(paths_.key, "no key");
  EXPECT_THAT(Error(), HasSubstr(paths_.key + " holds no private key that can be used, expected PEM"));
  chmod(paths_.key.c_str(), 0644);
  EXPECT_THAT(Error(), HasSubstr("run `chmod g-w,o-rwx " + paths_.key));
  WriteTlsFile(paths_.authority, "");
  chmod(paths_.key.c_str(), 0600);
  EXPECT_THAT(Error(), HasSubstr(paths_.authority + " holds no certificate of an authority"));
  WriteTlsFile(paths_.certificate, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  EXPECT_THAT(Error(), HasSubstr(paths_.certificate + " holds no certificate"));
  std::filesystem::remove(paths_.certificate);
  EXPECT_THAT(Error(), HasSubstr(paths_.certificate + " cannot be opened: No such file"));
  ASSERT_EQ(mkfifo(paths_.certificate.c_str(), 0600), 0);
  EXPECT_THAT(Error(), HasSubstr("is no regular file"));
}

TEST_F(TlsFilesTest, ChangedFilesAreReadAndBadOnesLeaveTheFormerInUse) {
  TlsFiles files = Open();
  const std::shared_ptr<const TlsMaterial> first = files.Get();
  EXPECT_EQ(files.Get(), first);
  EXPECT_EQ(files.reloads(), 0u);
  const TestCertificate next = authority_.Sign("node-1.hedgerow");
  WriteTlsFile(paths_.certificate, next.certificate, 0644);
  EXPECT_EQ(files.Get(), first) << "half of the exchange is done";
  EXPECT_THAT(std::string(files.status().message()), HasSubstr("is not the key of the certificate"));
  WriteTlsFile(paths_.key, next.key);
  EXPECT_EQ(files.Get()->certificate, next.certificate);
  EXPECT_TRUE(files.status().ok()) << files.status();
  EXPECT_EQ(files.reloads(), 1u);
  EXPECT_EQ(files.current(), files.Get());
}

TEST_F(TlsFilesTest, AnothersOrAnEndedCertificateReplacesNoGoodOne) {
  TlsFiles files = Open();
  const std::shared_ptr<const TlsMaterial> first = files.Get();
  WriteTlsFiles(folder_, authority_.Sign("node-2.hedgerow"), authority_.Pem());
  EXPECT_EQ(files.Get(), first);
  EXPECT_THAT(std::string(files.status().message()),
              HasSubstr("got a certificate for node-2.hedgerow, expected one for node-1.hedgerow"));
  WriteTlsFiles(folder_, authority_.Sign(kName, -5), authority_.Pem());
  EXPECT_EQ(files.Get(), first);
  EXPECT_THAT(std::string(files.status().message()), HasSubstr("holds a certificate that has ended"));
}

TEST_F(TlsFilesTest, ACertificateThatHasEndedMayBeTheFirst) {
  WriteTlsFiles(folder_, authority_.Sign(kName, -5), authority_.Pem());
  TlsFiles files = Open();
  files.Get();
  EXPECT_TRUE(files.status().ok()) << files.status();
  EXPECT_THAT(files.Problem(time(nullptr)), StartsWith("the certificate that is in use has ended"));
}

// Their versions are what they were at the first try.
TEST_F(TlsFilesTest, WhatCouldNotBeReadIsReadTheNextTime) {
  TlsFiles files = Open();
  const TestCertificate next = authority_.Sign(kName);
  WriteTlsFiles(folder_, next, authority_.Pem());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  files.Get();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(std::string(files.status().message()), HasSubstr("cannot be opened: Too many open files"));
  EXPECT_EQ(files.Get()->certificate, next.certificate);
  EXPECT_TRUE(files.status().ok()) << files.status();
}

TEST_F(TlsFilesTest, ChangedFilesAreReadAlsoWhereNoConnectionBegins) {
  TlsFiles files(paths_, kName, *ReadTlsMaterial(paths_, kName, Reader::kServes), absl::Milliseconds(5));
  const TestCertificate next = authority_.Sign(kName);
  WriteTlsFiles(folder_, next, authority_.Pem());
  for (int i = 0; i < 2000 && files.current()->certificate != next.certificate; ++i)
    absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(files.current()->certificate, next.certificate);
  EXPECT_EQ(files.reloads(), 1u);
}

}  // namespace
}  // namespace hedgerow::operate
