// The objects behind CUDA's handles. A stale handle is refused, not followed.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace emulated {

template <class Object>
class handles {
 public:
  void* add(std::shared_ptr<Object> object) {
    void* const handle = object.get();
    std::lock_guard hold(mutex_);
    objects_.emplace(handle, std::move(object));
    return handle;
  }

  // Null when there is none.
  std::shared_ptr<Object> find(const void* handle) const {
    std::lock_guard hold(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  std::shared_ptr<Object> remove(const void* handle) {
    std::lock_guard hold(mutex_);
    const auto node = objects_.extract(handle);
    return node.empty() ? nullptr : node.mapped();
  }

  template <class Condition>
  std::vector<std::shared_ptr<Object>> remove_if(Condition condition) {
    std::vector<std::shared_ptr<Object>> removed;
    std::lock_guard hold(mutex_);
    for (auto at = objects_.begin(); at != objects_.end();) {
      if (condition(*at->second)) {
        removed.push_back(std::move(at->second));
        at = objects_.erase(at);
      } else {
        ++at;
      }
    }
    return removed;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<Object>> objects_;
};

}  // namespace emulated
