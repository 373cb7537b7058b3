// SPDX-License-Identifier: Apache-2.0
#include "chaos/unsynced/node.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace hedgerow::unsynced {
namespace {

// In `tree` for an instant only.
constexpr char kNew[] = ".hr-unsynced-new";

// Takes the durable name away from what has it; a folder moves back to `objects`.
void Unplace(Node& folder, const std::string& name) {
  const NodePtr child = FindIn(folder.durable, name);
  if (child->is_folder()) {
    Must(
        renameat(folder.durable_folder.get(), name.c_str(), child->objects->folder.get(), child->object_name().c_str()),
        "take", name);
    child->durable_parent = nullptr;
  } else {
    Must(unlinkat(folder.durable_folder.get(), name.c_str(), 0), "remove", name);
  }
  folder.durable.erase(name);
}

// No instant is without the name when one file takes another's.
void PlaceFile(Node& folder, const std::string& name, const NodePtr& child) {
  const NodePtr before = FindIn(folder.durable, name);
  if (before != nullptr && before->is_folder()) Unplace(folder, name);
  const int at = folder.durable_folder.get();
  Must(linkat(child->objects->folder.get(), child->object_name().c_str(), at, kNew, 0), "link", name);
  Must(renameat(at, kNew, at, name.c_str()), "rename", name);
  folder.durable[name] = child;
}

void PlaceFolder(Node& folder, const std::string& name, const NodePtr& child) {
  if (FindIn(folder.durable, name) != nullptr) Unplace(folder, name);
  int from = child->objects->folder.get();
  std::string from_name = child->object_name();
  if (child->durable_parent != nullptr) {
    from = child->durable_parent->durable_folder.get();
    from_name = child->durable_name;
    child->durable_parent->durable.erase(from_name);
  }
  Must(renameat(from, from_name.c_str(), folder.durable_folder.get(), name.c_str()), "move", name);
  child->durable_parent = &folder;
  child->durable_name = name;
  folder.durable[name] = child;
}

// The way to a folder that programs can still reach.
void MakeReachable(Node& folder) {
  if (folder.durable_parent != nullptr) {
    MakeReachable(*folder.durable_parent);
  } else if (!folder.live_names.empty()) {
    const auto [parent, name] = *folder.live_names.begin();
    MakeReachable(*parent);
    MakeNameDurable(*parent, name);
  }
}

}  // namespace

void Must(int result, const char* what, const std::string& name) {
  if (result >= 0) return;
  std::perror(("hr-unsynced-fs: the backing folder: " + std::string(what) + " " + name).c_str());
  std::abort();
}

Objects::Objects(const std::string& path_in)
    : path(path_in), folder(open(path_in.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  Must(folder.get(), "open", path);
}

Node::Node(std::shared_ptr<const Objects> objects_in, uint64_t id_in, uint64_t life_in, bool folder,
           net::UniqueFd opened)
    : objects(std::move(objects_in)), id(id_in), life(life_in) {
  if (folder) {
    durable_folder = std::move(opened);
  } else {
    file.emplace(std::move(opened));
  }
}

// Whether it is there depends on where it had been moved to; its names in `tree` are others.
Node::~Node() {
  std::error_code ignored;
  std::filesystem::remove_all(objects->path + "/" + object_name(), ignored);
}

void Node::SetLive(const std::string& name, const NodePtr& child) {
  if (const NodePtr before = FindIn(live, name); before != nullptr) before->live_names.erase({this, name});
  if (child == nullptr) {
    live.erase(name);
  } else {
    live[name] = child;
    child->live_names.insert({this, name});
  }
}

NodePtr FindIn(const std::map<std::string, NodePtr>& names, const std::string& name) {
  const auto found = names.find(name);
  return found == names.end() ? nullptr : found->second;
}

void MakeNameDurable(Node& folder, const std::string& name) {
  const NodePtr want = FindIn(folder.live, name);
  const NodePtr have = FindIn(folder.durable, name);
  if (want == have) return;
  // A folder that is gone is gone with what was in it, but what had moved out of it lives on.
  if (have != nullptr && have->is_folder() && have->live_names.empty()) MakeNamesDurable(*have);
  if (want == nullptr) {
    Unplace(folder, name);
  } else if (want->is_folder()) {
    PlaceFolder(folder, name, want);
  } else {
    PlaceFile(folder, name, want);
  }
  if (have == nullptr) return;
  const std::set<std::pair<Node*, std::string>> others = have->live_names;
  for (const auto& [parent, other] : others) {
    MakeReachable(*parent);
    MakeNameDurable(*parent, other);
  }
}

void MakeNamesDurable(Node& folder) {
  std::set<std::string> names;
  for (const auto& [name, child] : folder.live) names.insert(name);
  for (const auto& [name, child] : folder.durable) names.insert(name);
  for (const std::string& name : names) MakeNameDurable(folder, name);
}

void MakeTreeDurable(Node& folder) {
  MakeNamesDurable(folder);
  for (const auto& [name, child] : folder.live) {
    if (child->is_folder()) MakeTreeDurable(*child);
  }
}

}  // namespace hedgerow::unsynced
