// Shared library: one that is looked for at run time, since a program that links it would
// not start where it is missing.
#pragma once

#include <dlfcn.h>

#include <string>

namespace manyworlds::inline v0::detail::nccl {

/// It stays loaded for as long as the process lives: threads of CUDA and NCCL outlive
/// every object of ours.
class shared_library {
 public:
  shared_library() noexcept = default;

  /// Loads by soname or path; one that the program has loaded already is that one.
  explicit shared_library(const char* name) noexcept
      : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_) return;
    const char* said = dlerror();
    error_ = said ? said : "not found";
  }

  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }
  [[nodiscard]] const std::string& error() const noexcept { return error_; }

  template <class Function>
  [[nodiscard]] Function* find(const char* symbol) const noexcept {
    return reinterpret_cast<Function*>(dlsym(handle_, symbol));
  }

 private:
  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace manyworlds::inline v0::detail::nccl
