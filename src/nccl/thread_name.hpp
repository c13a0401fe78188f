// Thread name: what a helper thread is called while it does one thing for long.
#pragma once

#include <pthread.h>

#include <string>

#include "nccl/ranges.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Names the calling thread while it lives; afterwards the thread has its own name
/// again.
class thread_name {
 public:
  explicit thread_name(const std::string& name) {
    ::pthread_getname_np(::pthread_self(), before_, sizeof before_);
    set(name.substr(0, 15).c_str());
  }
  thread_name(const thread_name&) = delete;
  thread_name& operator=(const thread_name&) = delete;
  ~thread_name() { set(before_); }

 private:
  static void set(const char* name) noexcept {
    ::pthread_setname_np(::pthread_self(), name);
    show_thread(name);
  }

  char before_[16] = "";
};

}  // namespace manyworlds::inline v0::detail::nccl
