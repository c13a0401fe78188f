// Rendezvous over a folder of a shared file system: the coordinator holds a lock.
#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "io/descriptor.hpp"
#include "io/signals_blocked.hpp"
#include "launch/rendezvous_backends.hpp"
#include "manyworlds/coro/offload.hpp"
#include "manyworlds/coro/worker_thread.hpp"
#include "manyworlds/store/file_store.hpp"

namespace manyworlds::inline v0::detail {

namespace {

const char* const file_round_key = "rendezvous/round";
const char* const file_closed_key = "rendezvous/closed";

/// Signals are for the program's own threads, which may await them.
std::unique_ptr<worker_thread> quiet_thread() {
  const signals_blocked while_starting;
  return std::make_unique<worker_thread>("rendezvous");
}

/// A seat for as long as the lock is held: the kernel takes it from a process that dies,
/// and from no other.
class locked_seat final : public lasting_seat {
 public:
  locked_seat(store& st, unique_descriptor lock) : store_(st), lock_(std::move(lock)) {}

  task<std::string> read() override {
    const std::optional<std::string> text = co_await store_.try_get(file_round_key);
    co_return text.value_or(std::string());
  }
  task<bool> publish(std::string round_json) override {
    co_await store_.set(file_round_key, std::move(round_json));
    co_return true;
  }
  task<bool> close() override {
    co_await store_.set(file_closed_key, "closed");
    co_return true;
  }

 private:
  store& store_;
  const unique_descriptor lock_;
};

std::string folder_of_run(const rendezvous_options& options) {
  if (options.endpoint.empty())
    throw std::invalid_argument("rendezvous: file needs a folder as its endpoint");
  return options.endpoint + "/" + options.run_id;
}

class file_backend final : public rendezvous_backend {
 public:
  explicit file_backend(const rendezvous_options& options)
      : store_(folder_of_run(options)),
        lock_path_(folder_of_run(options) + "/coordinator.lock"),
        thread_(quiet_thread()) {}

  store& meeting_place() override { return store_; }
  task<std::unique_ptr<coordinator_seat>> take_seat(const node_description&) override;
  task<bool> is_closed() override {
    const std::optional<std::string> mark = co_await store_.try_get(file_closed_key);
    co_return mark.has_value();
  }
  task<void> coordinator_died(std::string) override {
    tries_.note_death();
    co_return;
  }
  duration patience() const noexcept override { return std::chrono::seconds(10); }
  bool has_successors() const noexcept override { return true; }

 private:
  [[nodiscard]] unique_descriptor try_to_lock() const;

  file_store store_;
  const std::string lock_path_;
  /// Calls of a network's file system may block.
  const std::unique_ptr<worker_thread> thread_;
  seat_tries tries_;
};

task<std::unique_ptr<coordinator_seat>> file_backend::take_seat(const node_description&) {
  for (;;) {
    unique_descriptor lock = co_await offload(*thread_, [this] { return try_to_lock(); });
    if (lock) co_return std::make_unique<locked_seat>(store_, std::move(lock));
    co_await tries_.until_next();
  }
}

unique_descriptor file_backend::try_to_lock() const {
  unique_descriptor file(::open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) {
    throw std::system_error(errno, std::generic_category(),
                            "rendezvous: cannot open " + lock_path_);
  }
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  // Of the open file, not of the process: a second agent of ours does not pass.
  if (::fcntl(file.get(), F_OFD_SETLK, &whole) == 0) return file;
  if (errno == EAGAIN || errno == EACCES || errno == EINTR) return unique_descriptor();
  throw std::system_error(errno, std::generic_category(),
                          "rendezvous: cannot lock " + lock_path_);
}

}  // namespace

std::unique_ptr<rendezvous_backend> make_file_backend(runtime&,
                                                      const rendezvous_options& options) {
  return std::make_unique<file_backend>(options);
}

}  // namespace manyworlds::inline v0::detail
