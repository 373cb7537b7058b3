// SPDX-License-Identifier: Apache-2.0
//
// A file or folder of a Disk, its names as programs see them (live) and as a power cut would leave them
// (durable), and the steps that make names durable. A durable name is a name in the backing folder's `tree`;
// what has none waits in `objects` under its number. Disk calls this, under its lock.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "chaos/unsynced/file_image.h"
#include "net/unique_fd.h"

namespace hedgerow::unsynced {

struct Node;
using NodePtr = std::shared_ptr<Node>;

// The folder `objects`.
struct Objects {
  explicit Objects(const std::string& path_in);
  std::string path;
  net::UniqueFd folder;
};

struct Node {
  // `opened` is its durable file or folder.
  Node(std::shared_ptr<const Objects> objects_in, uint64_t id_in, uint64_t life_in, bool folder, net::UniqueFd opened);
  // Neither a program nor the disk can name it any more: it goes from `objects`, too.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  bool is_folder() const { return !file.has_value(); }
  int descriptor() const { return is_folder() ? durable_folder.get() : file->object(); }
  std::string object_name() const { return std::to_string(id); }
  void SetLive(const std::string& name, const NodePtr& child);  // null: the name is free

  const std::shared_ptr<const Objects> objects;
  const uint64_t id;
  const uint64_t life;  // of the disk, in which it was made or found

  std::optional<FileImage> file;

  // A folder's.
  std::map<std::string, NodePtr> live, durable;
  net::UniqueFd durable_folder;    // where its durable names are, wherever that has been moved to
  Node* durable_parent = nullptr;  // null: it has no durable name, or it is the root
  std::string durable_name;

  std::set<std::pair<Node*, std::string>> live_names;  // folders that hold it, and as what
};

// Ends the process if a step on the backing folder has failed: a test on a disk that fails proves nothing.
void Must(int result, const char* what, const std::string& name);

NodePtr FindIn(const std::map<std::string, NodePtr>& names, const std::string& name);

// Makes durable what the folder holds, or does not hold, under this name. A rename is one step: when a name
// goes that its file has exchanged for another, the other one becomes durable, too, with the folders on its
// way.
void MakeNameDurable(Node& folder, const std::string& name);
void MakeNamesDurable(Node& folder);
// Of the folder and of all below it.
void MakeTreeDurable(Node& folder);

}  // namespace hedgerow::unsynced
