// Folder store: a store of one's own. Its keys are files of a folder. The worked
// example of src/EXTENDING.md, against users' headers alone.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/store/store.hpp"

namespace mw = manyworlds;

/// Is shared by all processes that see the folder. Thread: any. A file is read and
/// written on the thread that asks, so the folder must be on a disk of this machine.
class folder_store final : public mw::store {
 public:
  explicit folder_store(const std::filesystem::path& folder)
      : files_(std::make_shared<files>(folder)) {}
  // First of all: worlds that form take back what they have entered.
  ~folder_store() override { end_users(); }

  [[nodiscard]] std::string address() const override { return files_->address(); }
  [[nodiscard]] mw::task<mw::store_reply> perform(mw::store_request request) override {
    return files::perform(files_, std::move(request));
  }

 private:
  using clock = std::chrono::steady_clock;
  using operation = mw::store_operation;

  /// The tasks of operations keep it, also beyond the store.
  class files {
   public:
    explicit files(const std::filesystem::path& folder) : folder_(folder) {
      std::filesystem::create_directories(folder_);
    }
    [[nodiscard]] std::string address() const { return "folder " + folder_.string(); }
    static mw::task<mw::store_reply> perform(std::shared_ptr<files> self,
                                             mw::store_request request);

   private:
    class lock;
    /// One request that is under way, and how it fails.
    struct attempt {
      files& self;
      const mw::store_request& request;
      clock::time_point began = clock::now();

      [[nodiscard]] bool is_late() const { return clock::now() - began >= request.limit; }
      [[noreturn]] void fail(mw::store_error_kind why, std::vector<std::string> keys,
                             std::string reason) const {
        throw mw::store_error(mw::store_failure(why, self.address(), request.operation,
                                                std::move(keys), clock::now() - began,
                                                std::move(reason)));
      }
    };

    void check(const attempt& a) const;
    [[nodiscard]] std::vector<std::string> missing(const attempt& a) const;
    mw::store_reply change(const attempt& a);
    [[nodiscard]] std::filesystem::path file_of(const std::string& key) const;
    [[nodiscard]] std::optional<std::string> read(const std::string& key) const;
    void write(const std::string& key, const std::string& value);

    const std::filesystem::path folder_;
  };

  std::shared_ptr<files> files_;
};

/// Excludes all other processes and threads. The kernel lets go of it if this one dies.
class folder_store::files::lock {
 public:
  explicit lock(const files& of)
      : fd_(::open((of.folder_ / "lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {}
  lock(const lock&) = delete;
  lock& operator=(const lock&) = delete;
  ~lock() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] bool try_lock() const { return ::flock(fd_, LOCK_EX | LOCK_NB) == 0; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

inline mw::task<mw::store_reply> folder_store::files::perform(std::shared_ptr<files> self,
                                                              mw::store_request request) {
  const attempt a{*self, request};
  self->check(a);
  if (request.operation == operation::get || request.operation == operation::wait) {
    for (;;) {
      const std::vector<std::string> missing = self->missing(a);
      // It may be erased between the two looks.
      if (request.operation == operation::wait && missing.empty())
        co_return mw::store_reply();
      if (request.operation == operation::get) {
        if (auto value = self->read(request.keys.front()))
          co_return mw::store_reply(std::move(value));
      }
      if (a.is_late())
        a.fail(mw::store_error_kind::timed_out, missing, "not set by any process");
      co_await mw::sleep_for(std::chrono::milliseconds(5));
    }
  }
  const lock alone(*self);
  if (!alone.is_open())
    a.fail(mw::store_error_kind::unreachable, request.keys, std::strerror(errno));
  // No wait for another process may block this thread.
  while (!alone.try_lock()) {
    if (a.is_late())
      a.fail(mw::store_error_kind::unreachable, request.keys, "its lock is held");
    co_await mw::sleep_for(std::chrono::milliseconds(1));
  }
  co_return self->change(a);
}

inline void folder_store::files::check(const attempt& a) const {
  const auto limit = [&](const char* what, std::size_t has, std::size_t most) {
    if (has <= most) return;
    a.fail(mw::store_error_kind::too_large, a.request.keys,
           std::string(what) + " of " + std::to_string(has) + " bytes, at most " +
               std::to_string(most));
  };
  const mw::store_limits limits;
  for (const std::string& key : a.request.keys)
    limit("a key", key.size(), limits.key_bytes);
  limit("a value", a.request.value.size(), limits.value_bytes);
  limit("a value", a.request.expected.size(), limits.value_bytes);
  limit("a list of keys", a.request.keys.size(), limits.keys_per_request);
}

inline std::vector<std::string> folder_store::files::missing(const attempt& a) const {
  std::vector<std::string> names;
  for (const std::string& key : a.request.keys) {
    if (!std::filesystem::exists(file_of(key))) names.push_back(key);
  }
  return names;
}

/// Runs under the lock.
inline mw::store_reply folder_store::files::change(const attempt& a) {
  const mw::store_request& r = a.request;
  switch (r.operation) {
    case operation::set:
      write(r.keys.front(), r.value);
      return mw::store_reply();
    case operation::add: {
      const std::string text = read(r.keys.front()).value_or("0");
      std::int64_t sum = 0;
      const auto [end, error] =
          std::from_chars(text.data(), text.data() + text.size(), sum);
      if (error != std::errc() || end != text.data() + text.size() ||
          __builtin_add_overflow(sum, r.delta, &sum)) {
        a.fail(mw::store_error_kind::refused, r.keys,
               "the value is no number, or the sum exceeds 64 bits");
      }
      write(r.keys.front(), std::to_string(sum));
      return mw::store_reply(sum);
    }
    case operation::compare_set: {
      const std::optional<std::string> value = read(r.keys.front());
      if (!value && !r.expected.empty()) return mw::store_reply(r.expected);
      if (value && *value != r.expected) return mw::store_reply(value);
      write(r.keys.front(), r.value);
      return mw::store_reply(r.value);
    }
    case operation::erase:
      return mw::store_reply(
          std::int64_t{std::filesystem::remove(file_of(r.keys.front()))});
    case operation::check:
      return mw::store_reply(std::int64_t{missing(a).empty()});
    case operation::num_keys: {
      std::int64_t keys = 0;
      for (const auto& file : std::filesystem::directory_iterator(folder_))
        keys += file.path().extension() == ".key";
      return mw::store_reply(keys);
    }
    case operation::try_get:
      return mw::store_reply(read(r.keys.front()));
    default:
      a.fail(mw::store_error_kind::refused, r.keys, "a folder has no such operation");
  }
}

/// A key may have 8 KiB and a file's name 255 bytes: the name is a hash of the key.
inline std::filesystem::path folder_store::files::file_of(const std::string& key) const {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return folder_ / (std::to_string(hash) + ".key");
}

inline std::optional<std::string> folder_store::files::read(
    const std::string& key) const {
  std::ifstream file(file_of(key), std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// A reader without the lock sees the old value or the new one, never a part.
inline void folder_store::files::write(const std::string& key, const std::string& value) {
  const std::filesystem::path draft = folder_ / "draft";
  std::ofstream(draft, std::ios::binary | std::ios::trunc) << value;
  std::filesystem::rename(draft, file_of(key));
}
