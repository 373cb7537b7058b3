// SPDX-License-Identifier: Apache-2.0
#include "config/tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::config {
namespace {

Mark ToMark(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }

class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(Diagnostics& errors) : errors_(errors) {}

  bool failed() const { return failed_; }
  int documents() const { return documents_; }
  Tree Take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 2) {
      Refuse(mark, "got a second document, expected only one per file");
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { Place({.mark = ToMark(mark)}); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Refuse(mark, "got an alias (*), expected the value written out");
    OnNull(mark, 0);
  }
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    Refuse(mark, absl::StrCat("got the anchor ", Quote(name), ", expected a plain value"));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& value) override {
    CheckTag(mark, tag);
    Place({.kind = Tree::Kind::kScalar, .mark = ToMark(mark), .quoted = tag == "!", .scalar = value});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, Tree::Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, YAML::EmitterStyle::value) override {
    Open(mark, tag, Tree::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

 private:
  // A map under construction holds a key until its value arrives.
  struct Frame {
    Tree tree;
    std::optional<Tree> key{};
  };

  void Refuse(const YAML::Mark& mark, absl::string_view message) {
    failed_ = true;
    errors_.Add(ToMark(mark), "", message);
  }
  void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    Refuse(mark, absl::StrCat("got the tag ", Quote(tag), ", expected a plain value"));
  }
  void Open(const YAML::Mark& mark, const std::string& tag, Tree::Kind kind) {
    CheckTag(mark, tag);
    if (stack_.size() == kMaxDepth && !too_deep_) {
      too_deep_ = true;
      Refuse(mark, absl::StrCat("got more than ", kMaxDepth, " nested levels, expected a configuration"));
    }
    stack_.push_back({.tree = {.kind = kind, .mark = ToMark(mark)}});
  }
  void Close() {
    Tree done = std::move(stack_.back().tree);
    stack_.pop_back();
    Place(std::move(done));
  }
  void Place(Tree tree) {
    if (stack_.empty()) {
      if (documents_ == 1) root_ = std::move(tree);
      return;
    }
    Frame& top = stack_.back();
    if (top.tree.kind == Tree::Kind::kList) {
      top.tree.items.push_back(std::move(tree));
    } else if (!top.key.has_value()) {
      top.key = std::move(tree);
    } else {
      // yaml-cpp gives an absent value the mark of whatever comes next.
      if (tree.kind == Tree::Kind::kNull) tree.mark = top.key->mark;
      top.tree.keys.push_back(*std::move(top.key));
      top.key.reset();
      top.tree.items.push_back(std::move(tree));
    }
  }

  Diagnostics& errors_;
  std::vector<Frame> stack_;
  Tree root_;
  int documents_ = 0;
  bool failed_ = false;
  bool too_deep_ = false;
};

}  // namespace

std::string Describe(const Tree& tree) {
  if (tree.kind == Tree::Kind::kScalar) return Quote(tree.scalar);
  if (tree.kind == Tree::Kind::kNull) return "nothing";
  return tree.kind == Tree::Kind::kList ? "a list" : "a map";
}

std::optional<Tree> ParseTree(absl::string_view text, Diagnostics& errors) {
  Builder builder(errors);
  // yaml-cpp reports by exception, also at 500 nested levels; they end here.
  try {
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    while (builder.documents() < 2 && parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    // Some of its messages quote what it read, its own mark for the end of the file (a control character)
    // included.
    errors.Add(e.mark.is_null() ? Mark{} : ToMark(e.mark), "",
               absl::StrCat("not valid YAML: ", absl::Utf8SafeCEscape(e.msg),
                            absl::StrContains(text, '\t') ? " (there is a tab in this file: indent with spaces)" : ""));
    return std::nullopt;
  }
  if (builder.failed()) return std::nullopt;
  Tree root = builder.Take();
  if (builder.documents() == 0 || root.kind == Tree::Kind::kNull) {
    errors.Add({}, "", "got an empty file, expected a configuration");
    return std::nullopt;
  }
  return root;
}

}  // namespace hedgerow::config
