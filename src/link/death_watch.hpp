// Death watch: who of our peers on this host has died, told by the kernel at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "death_notices.hpp"
#include "manyworlds/io/reactor.hpp"
#include "word_group.hpp"

namespace manyworlds::inline v0::shm {

/// Waits on the words of peers (`robust_word` there) and tells the service reactor whose
/// holder has died without letting go. It is the first of the notices, not the only one:
/// a peer may write what it likes into its word, and gains or loses no more by it than
/// the notice of its own death.
///
/// A thread waits on at most `words_per_thread` words (futex_waitv takes 128); the next
/// thread begins with the word after that, and threads stay until the end, so there are
/// as many as the most words at a time needed, and none where nothing was watched. They
/// inherit the signal mask of the caller of `add`.
///
/// All calls on the reactor's thread. Destroyed before the reactor, once
/// that turns no more: a notice may be in its queue.
class death_watch final : public death_notices {
 public:
  using remark_function = std::function<void(std::string)>;

  /// Threads are called `thread_name`, of which the system shows 15 characters. `remark`
  /// is given lines for the log, on any of its threads.
  death_watch(reactor& home, std::string thread_name, remark_function remark);
  death_watch(const death_watch&) = delete;
  death_watch& operator=(const death_watch&) = delete;
  ~death_watch() override;

  /// `none` where the kernel does not let us wait for several words (futex_waitv: Linux
  /// 5.16) or gives no thread; that was remarked, once.
  [[nodiscard]] ticket add(life_word& word, std::function<void()> died) override;
  /// Waits for the watching thread to take notice, some 50 us.
  void remove(ticket t) noexcept override;

  /// How often words have been looked at, for tests: idle is free.
  [[nodiscard]] std::uint64_t looks() const noexcept;

  static constexpr std::size_t words_per_thread = word_group::most;

 private:
  struct watched {
    word_group* where;
    std::function<void()> died;
  };
  struct delivery final : work {
    explicit delivery(death_watch& w) noexcept
        : work([](work& self) noexcept { static_cast<delivery&>(self).owner.deliver(); }),
          owner(w) {}
    death_watch& owner;
  };

  [[nodiscard]] bool may_wait();
  /// Puts the word into a group with room. Throws std::system_error.
  word_group& place(life_word& word, ticket t);
  void tell(ticket t) noexcept;
  void deliver() noexcept;

  reactor& home_;
  std::string thread_name_;
  remark_function remark_;
  bool asked_ = false;
  bool refused_ = false;
  std::uint64_t last_ticket_ = 0;
  std::map<ticket, watched> watched_;
  delivery delivery_;
  std::vector<ticket> delivering_;
  /// Guards what follows.
  std::mutex mutex_;
  std::vector<ticket> dead_;
  bool posted_ = false;
  /// Last: its threads use the others.
  std::vector<std::unique_ptr<word_group>> groups_;
};

}  // namespace manyworlds::inline v0::shm
