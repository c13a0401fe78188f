#include "serve/waiting_list.hpp"

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
constexpr duration tidy_limit = std::chrono::seconds(1);
const char* const rung = "1";

/// Computes the pause between two tries to write the list: twice as long each time, and
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

bool waiting_peers::holds(const waiting_peer& who) const noexcept {
  return std::any_of(all.begin(), all.end(), [&](const waiting_peer& each) {
    return each.id == who.id && each.record == who.record;
  });
}

void waiting_peers::remove(std::uint64_t id) noexcept {
  std::erase_if(all, [&](const waiting_peer& each) { return each.id == id; });
}

std::string waiting_peers::encode() const {
  wire_writer out;
  out.put(mark);
  for (const waiting_peer& each : all)
    out.put(each.id).put(std::string_view(each.record));
  const auto raw = out.view();
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

waiting_peers waiting_peers::decode(const std::string& text) {
  wire_reader in(std::as_bytes(std::span(text)));
  waiting_peers list;
  list.mark = in.get<std::uint64_t>();
  while (!in.rest().empty()) {
    if (list.all.size() == waiting_list::most) throw wire_error("too many entries");
    const auto id = in.get<std::uint64_t>();
    list.all.emplace_back(id, std::string(in.get_text(longest_record)));
  }
  return list;
}

waiting_list::waiting_list(runtime_core& rt, store& st, service_name service)
    : runtime_(rt),
      store_(st),
      list_(fmt::format("mw/accept/{}/waiting", service.view())),
      bell_(fmt::format("mw/accept/{}/bell", service.view())) {}

waiting_peers waiting_list::read(const std::string& text) const {
  if (text.empty()) return {};
  try {
    return waiting_peers::decode(text);
  } catch (const wire_error& e) {
    // No member wrote that; it is overwritten.
    runtime_.log(log_level::warning,
                 fmt::format("the store holds garbage under {}: {}", list_, e.what()));
    return {};
  }
}

task<void> waiting_list::enter(waiting_peer who) {
  growing_pause pause(runtime_);
  for (;;) {
    const std::string before = (co_await store_.try_get(list_)).value_or("");
    waiting_peers list = read(before);
    list.mark = runtime_.random_word();
    list.remove(who.id);
    if (list.all.size() == most) list.all.erase(list.all.begin());
    list.all.push_back(who);
    const std::string after = list.encode();
    const std::string stands = co_await store_.compare_set_unique(list_, before, after);
    if (stands == after) break;
    co_await sleep_for(pause.next());
  }
  co_await store_.set(bell_, rung);
}

task<bool> waiting_list::holds(waiting_peer who) {
  const std::optional<std::string> text = co_await store_.try_get(list_);
  const bool stands = read(text.value_or("")).holds(who);
  if (stands) co_await store_.set(bell_, rung);
  co_return stands;
}

task<std::vector<waiting_peer>> waiting_list::take(std::size_t at_most) {
  MW_ASSERT(at_most > 0, "a taker has room");
  for (;;) {
    std::vector<waiting_peer> taken = co_await take_now(at_most);
    if (!taken.empty()) co_return taken;
    try {
      co_await store_.wait(bell_, look_again);
    } catch (const store_error& e) {
      if (e.kind() != store_error_kind::timed_out) throw;
    }
    co_await store_.erase(bell_);
  }
}

task<std::vector<waiting_peer>> waiting_list::take_now(std::size_t at_most) {
  growing_pause pause(runtime_);
  for (;;) {
    const std::string before = (co_await store_.try_get(list_)).value_or("");
    waiting_peers list = read(before);
    if (list.all.empty()) co_return std::vector<waiting_peer>();
    const auto end = list.all.begin() +
                     static_cast<std::ptrdiff_t>(std::min(at_most, list.all.size()));
    std::vector<waiting_peer> taken(std::make_move_iterator(list.all.begin()),
                                    std::make_move_iterator(end));
    list.all.erase(list.all.begin(), end);
    list.mark = runtime_.random_word();
    const std::string after = list.encode();
    const std::string stands = co_await store_.compare_set_unique(list_, before, after);
    if (stands == after) {
      if (!list.all.empty()) co_await ring_for_others();
      co_return taken;
    }
    co_await sleep_for(pause.next());
  }
}

// Another acceptor may have room for the peers that are left. Those that were taken are
// served even if this fails.
task<void> waiting_list::ring_for_others() {
  try {
    co_await store_.set(bell_, rung);
  } catch (const store_error& e) {
    runtime_.log(log_level::debug, e.what());
  }
}

task<void> waiting_list::tidy() {
  const std::optional<std::string> text = co_await store_.try_get(list_, tidy_limit);
  if (!text || !read(*text).all.empty()) co_return;
  // A peer that enters in between finds its entry missing, and enters again.
  co_await store_.erase(list_, tidy_limit);
  co_await store_.erase(bell_, tidy_limit);
}

}  // namespace manyworlds::inline v0::detail
