#include "serve/join_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "link/wire.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t longest_record = 4096;
constexpr duration erase_limit = std::chrono::seconds(1);
const char* const rung = "1";

/// Computes the pause between two tries to write the queue: twice as long each time, and
/// at random, so that writers do not try in step. One writer gets through each time.
class growing_pause {
 public:
  explicit growing_pause(runtime_core& rt) noexcept : runtime_(rt) {}

  [[nodiscard]] duration next() {
    const duration now = pause_ / 2 + runtime_.jitter(pause_);
    pause_ = std::min(2 * pause_, longest);
    return now;
  }

 private:
  static constexpr duration longest = std::chrono::milliseconds(100);
  runtime_core& runtime_;
  duration pause_ = std::chrono::milliseconds(1);
};

}  // namespace

bool join_entries::holds(const join_entry& entry) const noexcept {
  return std::any_of(all.begin(), all.end(), [&](const join_entry& each) {
    return each.id == entry.id && each.record == entry.record;
  });
}

void join_entries::remove(std::uint64_t id) noexcept {
  std::erase_if(all, [&](const join_entry& each) { return each.id == id; });
}

std::string join_entries::encode() const {
  wire_writer out;
  out.put(mark);
  for (const join_entry& each : all) out.put(each.id).put(std::string_view(each.record));
  const auto raw = out.view();
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

join_entries join_entries::decode(const std::string& text) {
  wire_reader in(std::as_bytes(std::span(text)));
  join_entries queue;
  queue.mark = in.get<std::uint64_t>();
  while (!in.rest().empty()) {
    if (queue.all.size() == join_queue::most) throw wire_error("too many entries");
    const auto id = in.get<std::uint64_t>();
    queue.all.emplace_back(id, std::string(in.get_text(longest_record)));
  }
  return queue;
}

join_queue::join_queue(runtime_core& rt, store& st, service_name service)
    : runtime_(rt),
      store_(st),
      list_key_(fmt::format("mw/accept/{}/waiting", service.view())),
      bell_key_(fmt::format("mw/accept/{}/bell", service.view())),
      notice_prefix_(fmt::format("mw/accept/{}/taken/", service.view())) {}

std::string join_queue::notice_key(std::uint64_t id) const {
  return notice_prefix_ + std::to_string(id);
}

join_entries join_queue::read(const std::string& text) const {
  if (text.empty()) return {};
  try {
    return join_entries::decode(text);
  } catch (const wire_error& e) {
    // No member wrote that; it is overwritten.
    runtime_.log(log_level::warning,
                 fmt::format("the value under the key {} of the store is not a join "
                             "queue, and is overwritten: {}",
                             list_key_, e.what()));
    return {};
  }
}

task<void> join_queue::enter(join_entry entry) {
  growing_pause pause(runtime_);
  for (;;) {
    const std::string before = (co_await store_.try_get(list_key_)).value_or("");
    join_entries queue = read(before);
    queue.mark = runtime_.random_word();
    queue.remove(entry.id);
    if (queue.all.size() == most) queue.all.erase(queue.all.begin());
    queue.all.push_back(entry);
    const std::string after = queue.encode();
    const std::string stands =
        co_await store_.compare_set_unique(list_key_, before, after);
    if (stands == after) break;
    co_await sleep_for(pause.next());
  }
  co_await store_.set(bell_key_, rung);
}

task<bool> join_queue::holds(join_entry entry) {
  const std::optional<std::string> text = co_await store_.try_get(list_key_);
  const bool stands = read(text.value_or("")).holds(entry);
  if (stands) co_await store_.set(bell_key_, rung);
  co_return stands;
}

task<void> join_queue::await_notice(std::uint64_t id) {
  const std::string key = notice_key(id);
  co_await store_.wait(key, duration::max());
  co_await store_.erase(key);
}

task<void> join_queue::erase_notice(std::uint64_t id) {
  co_await store_.erase(notice_key(id), erase_limit);
}

task<void> join_queue::leave_notices(const std::vector<join_entry>& taken) {
  std::vector<store_entry> notices;
  for (const join_entry& each : taken) notices.push_back({notice_key(each.id), rung});
  co_await store_.multi_set(std::move(notices));
}

task<std::vector<join_entry>> join_queue::take(std::size_t at_most) {
  MW_ASSERT(at_most > 0, "a taker has room");
  for (;;) {
    std::vector<join_entry> taken = co_await take_now(at_most);
    if (!taken.empty()) co_return taken;
    try {
      co_await store_.wait(bell_key_, check_period);
    } catch (const store_error& e) {
      if (e.kind() != store_error_kind::timed_out) throw;
    }
    co_await store_.erase(bell_key_);
  }
}

task<std::vector<join_entry>> join_queue::take_now(std::size_t at_most) {
  growing_pause pause(runtime_);
  for (;;) {
    const std::string before = (co_await store_.try_get(list_key_)).value_or("");
    join_entries queue = read(before);
    if (queue.all.empty()) co_return std::vector<join_entry>();
    const auto end = queue.all.begin() +
                     static_cast<std::ptrdiff_t>(std::min(at_most, queue.all.size()));
    std::vector<join_entry> taken(std::make_move_iterator(queue.all.begin()),
                                  std::make_move_iterator(end));
    queue.all.erase(queue.all.begin(), end);
    queue.mark = runtime_.random_word();
    co_await leave_notices(taken);
    const std::string after = queue.encode();
    const std::string stands =
        co_await store_.compare_set_unique(list_key_, before, after);
    if (stands == after) {
      if (!queue.all.empty()) co_await ring_for_others();
      co_return taken;
    }
    co_await sleep_for(pause.next());
  }
}

// Another acceptor may have room for the peers that are left. Those that were taken are
// served even if this fails.
task<void> join_queue::ring_for_others() {
  try {
    co_await store_.set(bell_key_, rung);
  } catch (const store_error& e) {
    runtime_.log(log_level::debug, e.what());
  }
}

task<void> join_queue::erase_if_empty() {
  const std::optional<std::string> text = co_await store_.try_get(list_key_, erase_limit);
  if (!text || !read(*text).all.empty()) co_return;
  // A peer that enters in between finds its entry missing, and enters again.
  co_await store_.erase(list_key_, erase_limit);
  co_await store_.erase(bell_key_, erase_limit);
}

}  // namespace manyworlds::inline v0::detail
