#include "io/system_process_host.hpp"

#include <errno.h>
#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "io/abandoned_groups.hpp"
#include "io/current_reactor.hpp"
#include "io/signals_blocked.hpp"
#include "manyworlds/coro/offload.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

class system_process final : public hosted_process {
 public:
  system_process(system_process_host& host, reactor& home, process_handle handle,
                 std::unique_ptr<process_tree> tree, tree_listener* listener,
                 tree_mark mark)
      : host_(host),
        home_(home),
        handle_(std::move(handle)),
        tree_(std::move(tree)),
        listener_(listener),
        mark_(std::move(mark)) {}
  ~system_process() override {
    if (listener_) listener_->tree_has_ended(mark_);
  }

  [[nodiscard]] pid_t pid() const noexcept override { return handle_.pid(); }
  [[nodiscard]] bool has_ended() const noexcept override { return handle_.has_ended(); }
  void signal(int number) noexcept override { handle_.signal(number); }
  [[nodiscard]] task<process_status> ended() override {
    co_await handle_.ended(home_);
    process_status status = co_await handle_.reap(home_);
    if (status.signal == SIGKILL) status.out_of_memory = host_.kills().explain_one();
    co_return status;
  }
  [[nodiscard]] task<std::size_t> signal_tree(int number) override {
    tree_->ask();
    const auto act = [this, number] {
      return number == SIGKILL ? tree_->kill() : tree_->signal(number);
    };
    try {
      co_return co_await offload(host_.finder(), act);
    } catch (const std::system_error&) {
      // There is no descriptor to look with. The program needs none.
    }
    if (!handle_.has_ended()) handle_.signal(number);
    co_return 1;
  }
  [[nodiscard]] task<std::size_t> signal_missed(int number) override {
    tree_->ask();
    const auto act = [this, number]() -> std::size_t {
      try {
        return tree_->signal_missed(number);
      } catch (const std::system_error&) {
        return 0;  // the end of the grace ends them
      }
    };
    co_return co_await offload(host_.finder(), act);
  }
  [[nodiscard]] task<bool> is_tree_empty() override {
    tree_->ask();
    const auto look = [this] {
      try {
        return tree_->is_empty();
      } catch (const std::system_error&) {
        return false;  // that is not known now
      }
    };
    co_return co_await offload(host_.finder(), look);
  }

 private:
  system_process_host& host_;
  reactor& home_;
  process_handle handle_;
  std::unique_ptr<process_tree> tree_;
  tree_listener* listener_;
  tree_mark mark_;
};

}  // namespace

void system_process_host::begin() {
  const std::lock_guard lock(mutex_);
  if (starter_) return;
  std::string why_not;
  group_folder_ = find_group_folder(why_not);
  notice_ = group_folder_.empty()
                ? "programs are found by /proc, and not by a control group of their own, "
                  "since " +
                      why_not
                : "each program gets a control group of its own in " + group_folder_;
  if (!kills_) kills_.emplace();
  // Their owner takes no signals on them.
  const signals_blocked inherited;
  finder_ = std::make_unique<worker_thread>("mw-find");
  starter_ = std::make_unique<worker_thread>("mw-start");
}

std::string system_process_host::take_notice() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notice_, {});
}

std::unique_ptr<process_tree> system_process_host::make_tree(tree_mark& mark) {
  std::uint64_t key = 0;
  if (::getrandom(&key, sizeof key, 0) != sizeof key)
    throw std::system_error(errno, std::generic_category(), "getrandom");
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(key));
  mark.variable = tree_variable + std::string("=") + text;
  const std::lock_guard lock(mutex_);
  if (!group_folder_.empty()) {
    mark.group = group_folder_ + '/' + name_of_group(text);
    try {
      return std::make_unique<group_tree>(mark.group);
    } catch (const std::system_error& e) {
      notice_ = std::string("programs are found by /proc from now on: ") + e.what();
      group_folder_.clear();
      mark.group.clear();
    }
  }
  return std::make_unique<listed_tree>(mark.variable, census_);
}

/// On the thread that starts programs: this may take a second.
void system_process_host::empty_groups() {
  std::string folder;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(has_emptied_, true) || group_folder_.empty()) return;
    folder = group_folder_;
  }
  for (const abandoned_group& each : end_abandoned_groups(folder)) {
    const std::lock_guard lock(mutex_);
    notice_ += (notice_.empty() ? "" : "; ") + each.text();
  }
}

start_outcome system_process_host::start_here(reactor& home,
                                              const process_description& what,
                                              tree_listener* listener) {
  empty_groups();
  for (;;) {
    tree_mark mark;
    std::unique_ptr<process_tree> tree = make_tree(mark);
    try {
      if (listener) listener->tree_begins(mark);
    } catch (const std::system_error& e) {
      return start_failure{start_step::guard, e.code().value(), {}};
    }
    auto outcome = start_process(what, {tree->entry(), mark.variable});
    if (auto* handle = std::get_if<process_handle>(&outcome)) {
      tree->began(handle->pid());
      return std::make_unique<system_process>(*this, home, std::move(*handle),
                                              std::move(tree), listener, std::move(mark));
    }
    if (listener) listener->tree_has_ended(mark);
    const start_failure& why = std::get<start_failure>(outcome);
    if (why.step != start_step::group) return why;
    // A group that takes no processes, such as a threaded one.
    const std::lock_guard lock(mutex_);
    group_folder_.clear();
    notice_ =
        "programs are found by /proc from now on, since a control group below our "
        "own takes no processes";
  }
}

task<start_outcome> system_process_host::start(const process_description& what,
                                               tree_listener* listener) {
  reactor* const home = current_reactor();
  MW_ASSERT(home, "programs are started by tasks of a reactor");
  try {
    begin();
  } catch (const std::system_error& e) {
    // A thread counts among a user's processes.
    co_return start_failure{start_step::process, e.code().value(), {}};
  }
  const auto act = [&]() -> start_outcome {
    try {
      return start_here(*home, what, listener);
    } catch (const std::system_error& e) {
      return start_failure{start_step::process, e.code().value(), {}};
    }
  };
  co_return co_await offload(*starter_, act);
}

}  // namespace manyworlds::inline v0::detail
