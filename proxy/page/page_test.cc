// SPDX-License-Identifier: Apache-2.0
//
// The page over HTTP: it is whole, names nothing outside of itself, and its data are what History keeps.

#include "proxy/page/page.h"

#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <google/protobuf/util/json_util.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "operate/scrape_test.h"
#include "proxy/admin/fake_data_plane.h"

namespace hedgerow {
namespace {

using testing::HasSubstr;

class PageTest : public testing::Test {
 protected:
  std::string Get(const std::string& path) { return operate::HttpGet(server_->address(), path); }

  History history_{600, NewBootText()};
  const std::unique_ptr<operate::HttpServer> server_ =
      *operate::HttpServer::Start("127.0.0.1:0", "metrics.listen", PageRoutes(history_, "/nonexistent"));
};

TEST_F(PageTest, IsWholeAndNamesNothingOutside) {
  std::vector<std::string> left = {"/"};
  std::set<std::string> seen;
  size_t bytes = 0;
  const std::regex reference(R"re((?:src|href|from)\s*=?\s*["']([^"'#]+)["'])re");
  while (!left.empty()) {
    const std::string path = left.back();
    left.pop_back();
    if (!seen.insert(path).second) continue;
    const std::string answer = Get(path);
    ASSERT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200 ")) << path;
    const std::string body = answer.substr(answer.find("\r\n\r\n") + 4);
    bytes += body.size();
    std::string text = body;
    for (std::smatch found; std::regex_search(text, found, reference); text = found.suffix()) {
      std::string target = found[1];
      if (absl::StartsWith(target, "./")) target = target.substr(1);
      ASSERT_TRUE(absl::StartsWith(target, "/") && !absl::StartsWith(target, "//")) << path << " names " << target;
      if (target != "/metrics") left.push_back(target);
    }
    // The name of a namespace is no address, and nothing of it is fetched.
    const std::string rest = std::regex_replace(body, std::regex("http://www.w3.org/2000/svg"), "");
    EXPECT_THAT(rest, testing::Not(HasSubstr("://"))) << path;
    for (const char* never : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("}) {
      EXPECT_THAT(body, testing::Not(HasSubstr(never))) << path;
    }
  }
  EXPECT_TRUE(seen.contains("/main.js") && seen.contains("/page.css") && seen.contains("/icon.svg"));
  EXPECT_LT(bytes, 100'000u) << "light, it should be";
}

TEST_F(PageTest, NoMarkupNeedsWhatThePolicyForbids) {
  const std::string html = Get("/");
  EXPECT_FALSE(std::regex_search(html, std::regex(R"(<script(?![^>]*\bsrc=))"))) << "a script in the page itself";
  EXPECT_FALSE(std::regex_search(html, std::regex(R"(\s(style|on[a-z]+)=)"))) << "a style or handler in an attribute";
}

TEST_F(PageTest, FilesHaveTheirTypes) {
  EXPECT_THAT(Get("/"), HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(Get("/page.css"), HasSubstr("Content-Type: text/css; charset=utf-8\r\n"));
  EXPECT_THAT(Get("/main.js"), HasSubstr("Content-Type: text/javascript; charset=utf-8\r\n"));
  EXPECT_THAT(Get("/icon.svg"), HasSubstr("Content-Type: image/svg+xml\r\n"));
  EXPECT_THAT(Get("/index.html"), HasSubstr("404"));
}

TEST_F(PageTest, TheDataAreTheHistory) {
  FakeDataPlane fake;
  DaemonFacts facts;
  facts.problems = {{ProblemCode::kUplinkDown, "uplink <script>alert(1)</script>\" is gone"}};
  for (int i = 0; i < 3; ++i) {
    fake.snapshot.taken_ns += 1'000'000'000;
    history_.Record(FakeConfig(), facts, fake.snapshot, absl::Now());
  }
  const std::string answer = Get(absl::StrCat(kPageDataPath, "?after=1"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: application/json\r\n"));
  v1::PageData data;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(answer.substr(answer.find("\r\n\r\n") + 4), &data, {}).ok())
      << answer;
  EXPECT_EQ(data.next(), 2u);
  EXPECT_EQ(data.at_ms_size(), 1);
  EXPECT_EQ(data.status().problems(0), facts.problems[0].ToString());
  EXPECT_TRUE(absl::StartsWith(Get(absl::StrCat(kPageDataPath, "?after=-1")), "HTTP/1.1 400 "));
  EXPECT_TRUE(absl::StartsWith(Get(absl::StrCat(kPageDataPath, "?after=x")), "HTTP/1.1 400 "));
}

}  // namespace
}  // namespace hedgerow
