#include "store/etcd_features.hpp"

#if MANYWORLDS_HAS_ETCD

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <utility>

#include "io/system_environment.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "store/etcd_client.hpp"
#include "store/etcd_wait.hpp"
#include "store/stored_number.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// The longest time for leases to be revoked when the last user has gone.
constexpr duration closing_limit = std::chrono::milliseconds(500);
// What is asked three times within its time may fail twice.
constexpr int asks_per_lease = 3;

std::mt19937_64 seeded_by_system() {
  std::uint64_t seed = 0;
  system_environment().fill_random(std::as_writable_bytes(std::span(&seed, 1)));
  return std::mt19937_64(seed);
}

/// Work that runs a function once, and is its own owner.
struct later_work final : work {
  explicit later_work(std::function<void()> what) noexcept
      : work([](work& w) noexcept {
          const std::unique_ptr<later_work> self(static_cast<later_work*>(&w));
          self->f();
        }),
        f(std::move(what)) {}
  std::function<void()> f;
};

}  // namespace

etcd_client::etcd_client(const std::string& endpoints, etcd_store_options options)
    : options_(std::move(options)),
      random_(seeded_by_system()),
      gateway_(endpoints, options_),
      serving_(serve_background()),
      root_(
          gateway_.home(),
          [](void* self) noexcept {
            static_cast<etcd_client*>(self)->has_closed_.set_value();
          },
          this) {
  root_.start(serving_.promise());
}

etcd_client::~etcd_client() {
  run_later([this] { closing_.set(); });
  has_closed_.get_future().wait();
  // The notice comes from within the task's last suspension: one more turn.
  std::promise<void> turned;
  run_later([&turned] { turned.set_value(); });
  turned.get_future().wait();
}

void etcd_client::run_later(std::function<void()> f) {
  gateway_.home().execute(*new later_work(std::move(f)));
}

/// Runs what belongs to no operation: leases that are kept alive, shared watches.
task<void> etcd_client::serve_background() {
  co_await scope::run([this](scope& s) -> task<void> {
    background_ = &s;
    co_await closing_.wait();
    if (revoking_ > 0) {
      try {
        co_await within(revoked_.wait(), closing_limit);
      } catch (const timed_out&) {
        // The leases end by themselves.
      }
    }
    s.cancel();
  });
}

// ------------------------------------------------------------------------------- Leases

task<std::shared_ptr<etcd_lease_state>> etcd_client::grant(duration at_least,
                                                           duration limit) {
  using std::chrono::seconds;
  const auto whole = std::max<std::int64_t>(
      std::chrono::ceil<seconds>(
          std::min<duration>(at_least, std::chrono::hours(1 << 20)))
          .count(),
      1);
  call c(store_operation::lease, {}, limit, home().now());
  const time_point sent = home().now();
  const std::string text = co_await gateway_.ask(
      c, "/v3/lease/grant", fmt::format(R"({{"TTL":"{}"}})", whole), true);
  std::shared_ptr<etcd_lease_state> lease;
  std::string bad_text;
  try {
    const etcd::lease_answer granted = etcd::read_lease(text);
    if (granted.seconds == 0) throw etcd::bad_answer("a lease was granted for no time");
    lease = std::make_shared<etcd_lease_state>(granted.id, seconds(granted.seconds));
  } catch (const etcd::bad_answer& bad) {
    bad_text = bad.what();
  }
  if (!lease) gateway_.fail(c, store_error_kind::protocol, bad_text);
  // It counts from before the question, so that etcd's own time ends later.
  lease->expiry = later(sent, lease->granted);
  MW_ASSERT(background_, "the background runs before any operation");
  background_->spawn(keep_alive(lease));
  co_return lease;
}

void etcd_client::lose(etcd_lease_state& lease, std::string why) {
  lease.why_lost =
      fmt::format("lease {:x} of {} is lost: {}", lease.id, gateway_.address(), why);
  lease.is_lost = true;
  lease.lost.set();
}

/// Ends when the lease is lost or let go.
task<void> etcd_client::keep_alive(std::shared_ptr<etcd_lease_state> lease) {
  const duration period = lease->granted / asks_per_lease;
  const std::string body = fmt::format(R"({{"ID":"{}"}})", lease->id);
  time_point next = home().now() + period;
  while (!lease->is_let_go) {
    const time_point expiry = lease->expiry;
    try {
      co_await within(lease->let_go.wait(),
                      std::max(std::min(next, expiry) - home().now(), duration::zero()));
      co_return;
    } catch (const timed_out&) {
      // It is time to ask.
    }
    const time_point sent = home().now();
    std::string trouble;
    bool is_over = false;
    // Also one that has expired here is asked about once: etcd may be later.
    call c(store_operation::lease, {}, std::max(expiry - sent, duration::zero()), sent);
    // A member without a leader keeps the question: another is asked in time.
    c.longest_attempt = period;
    try {
      const std::string text =
          co_await gateway_.ask(c, "/v3/lease/keepalive", body, true);
      const etcd::lease_answer answer = etcd::read_keep_alive(text);
      is_over = answer.seconds == 0;
      trouble = is_over ? "etcd has ended it" : "";
      if (!is_over && sent < expiry)
        lease->expiry = later(sent, std::chrono::seconds(answer.seconds));
    } catch (const store_error& e) {
      trouble = e.failure().reason;
    } catch (const etcd::bad_answer& bad) {
      trouble = bad.what();
    }
    if (lease->is_let_go) co_return;
    if (is_over || home().now() >= lease->expiry.load()) {
      lose(*lease, trouble.empty() ? "this process was stopped for longer" : trouble);
      co_return;
    }
    next = trouble.empty() ? sent + period : home().now() + period / 4;
  }
}

task<std::string> etcd_client::await_loss(std::shared_ptr<etcd_lease_state> lease) {
  co_await lease->lost.wait();
  co_return lease->why_lost;
}

task<void> etcd_client::revoke(std::shared_ptr<etcd_lease_state> lease, duration limit) {
  lease->is_let_go = true;
  lease->let_go.set();
  lease->expiry = time_point::max();
  call c(store_operation::lease, {}, limit, home().now());
  std::exception_ptr error;
  try {
    co_await gateway_.ask(c, "/v3/lease/revoke",
                          fmt::format(R"({{"ID":"{}"}})", lease->id), true);
  } catch (const store_error& e) {
    if (!etcd::says_lease_is_gone(e.failure().reason)) error = std::current_exception();
  }
  if (error) std::rethrow_exception(error);
}

task<void> etcd_client::revoke_now(std::shared_ptr<etcd_lease_state> lease) {
  try {
    co_await revoke(std::move(lease), closing_limit);
  } catch (const store_error&) {
    // It ends by itself.
  }
  if (--revoking_ == 0) revoked_.set();
}

void etcd_client::let_go(std::shared_ptr<etcd_lease_state> lease) {
  if (lease->is_let_go || lease->is_lost) return;
  lease->is_let_go = true;
  ++revoking_;
  revoked_.reset();
  background_->spawn(revoke_now(std::move(lease)));
}

// ------------------------------------------------------------------------------ Watches

etcd_client::subscription::subscription(etcd_client& o, std::shared_ptr<shared_watch> w,
                                        std::string b, std::string e, event& c)
    : owner(o), watch(std::move(w)), begin(std::move(b)), end(std::move(e)), changed(c) {
  watch->subscriptions.push_back(this);
}

etcd_client::subscription::~subscription() {
  std::erase(watch->subscriptions, this);
  if (!watch->subscriptions.empty()) return;
  watch->unused.set();
  const auto listed = owner.watches_.find(watch->name);
  if (listed != owner.watches_.end() && listed->second == watch)
    owner.watches_.erase(listed);
}

/// Watches a range for what comes after the revision that was seen.
std::unique_ptr<etcd_client::subscription> etcd_client::subscribe(
    const std::string& begin, const std::string& end, std::int64_t seen_revision,
    event& changed) {
  constexpr std::size_t most_watches = 32;
  const std::string all_end = etcd::end_of_prefix(options_.prefix);
  const bool is_own = watches_.contains(begin + end) || watches_.size() < most_watches;
  const std::string from = is_own ? begin : options_.prefix;
  const std::string to = is_own ? end : all_end;
  std::shared_ptr<shared_watch>& watch = watches_[from + to];
  const bool is_new = !watch;
  if (is_new) {
    // From now on: with an earlier revision etcd catches up only every 100 ms.
    watch = std::make_shared<shared_watch>(gateway_, from, to, 0);
    background_->spawn(follow(watch));
  }
  auto made = std::make_unique<subscription>(*this, watch, begin, end, changed);
  // What it has told since that revision was told to others alone.
  if (!is_new && watch->stream.from() > seen_revision + 1) changed.set();
  return made;
}

/// Tells those that wait of changes, until none is left.
task<void> etcd_client::follow(std::shared_ptr<shared_watch> watch) {
  while (!watch->subscriptions.empty()) {
    etcd::watch_stream::told news;
    bool has_failed = false;
    try {
      auto first = co_await when_any(watch->stream.next(), watch->unused.wait());
      if (!std::get<0>(first)) break;
      news = std::move(*std::get<0>(first));
    } catch (const store_error&) {
      has_failed = true;
    }
    for (subscription* s : watch->subscriptions) {
      for (const etcd_change& c : news.changes) {
        if (!s->contains(c.entry.key)) continue;
        s->was_set = s->was_set || !c.is_erased;
        s->changed.set();
      }
      // They look again, since what was before is not told, and meet the same failure if
      // it lasts.
      if (has_failed || news.is_begun || news.is_compacted) s->changed.set();
    }
    if (!has_failed) continue;
    watch->has_ended = true;
    const auto listed = watches_.find(watch->name);
    if (listed != watches_.end() && listed->second == watch) watches_.erase(listed);
    break;
  }
}

task<etcd_changes> etcd_client::next(std::shared_ptr<etcd_watch_state> watch) {
  for (;;) {
    etcd_changes told;
    if (watch->must_list) {
      call c(store_operation::watch, {}, duration::max(), home().now());
      etcd_listing all = co_await listing(c, watch->key, watch->end, false);
      watch->stream.restart(all.revision + 1);
      watch->must_list = false;
      told.is_listing = true;
      told.revision = all.revision;
      for (etcd_entry& e : all.entries) told.changes.push_back({std::move(e), false});
      co_return told;
    }
    etcd::watch_stream::told news = co_await watch->stream.next();
    watch->must_list = news.is_compacted;
    told.revision = news.revision;
    for (etcd_change& c : news.changes) {
      std::optional<std::string> key = key_of(c.entry.key);
      if (!key) continue;
      c.entry.key = std::move(*key);
      told.changes.push_back(std::move(c));
    }
    if (!told.changes.empty()) co_return told;
  }
}

// ------------------------------------------------------------------------- The waiting

/// Looks at each key, in requests of at most 128.
task<void> etcd_client::look_at_each(call& c, store_request& r, wait& w) {
  const bool counts_queues =
      r.operation == store_operation::wait || r.operation == store_operation::check;
  w.values.assign(r.keys.size(), {});
  for (std::size_t at = 0; at < r.keys.size();) {
    const std::size_t part = std::min(r.keys.size() - at, etcd_most_operations);
    etcd::transaction_body body;
    for (std::size_t i = at; i < at + part; ++i) {
      etcd::range_request one;
      one.key = name_of(r.keys[i]);
      if (counts_queues) one.end = queue_end(r.keys[i]);
      one.count_only = counts_queues;
      body.then_range(etcd::range_body(one));
    }
    etcd::transaction_answer seen = co_await transact(c, body.text(), true);
    if (seen.steps.size() != part)
      gateway_.fail(c, store_error_kind::protocol,
                    "an answer has other steps than asked");
    for (std::size_t i = 0; i < part; ++i) {
      etcd::range_answer& one = seen.steps[i];
      w.missing[at + i] = one.count == 0;
      if (!one.entries.empty()) w.values[at + i] = std::move(one.entries.front().value);
    }
    if (w.revision == 0 || at == 0) w.revision = seen.revision;
    at += part;
  }
}

/// Looks whether a wait is over, and makes its reply then.
task<bool> etcd_client::look(call& c, store_request& r, wait& w, store_reply& reply) {
  if (r.operation == store_operation::pop) {
    reply = co_await try_pop(c, r);
    w.revision = reply.number;
    w.missing[0] = !reply.value;
    co_return reply.value.has_value();
  }
  co_await look_at_each(c, r, w);
  for (std::size_t i = 0; i < r.keys.size(); ++i) {
    // For a wait it is enough that it was set once.
    const bool was_set = r.operation == store_operation::wait && w.subscriptions[i] &&
                         w.subscriptions[i]->was_set;
    if (was_set) w.missing[i] = false;
  }
  if (r.operation == store_operation::barrier) {
    const std::optional<std::string> value =
        w.missing[0] ? std::nullopt : std::optional<std::string>(w.values[0]);
    const std::optional<std::int64_t> count = stored_sum(value, 0);
    if (!count) gateway_.fail(c, store_error_kind::refused, "the value is no number");
    co_return *count >= r.delta;
  }
  if (std::find(w.missing.begin(), w.missing.end(), true) != w.missing.end())
    co_return false;
  if (r.operation == store_operation::get) reply.value = std::move(w.values.front());
  if (r.operation == store_operation::multi_get) reply.values = std::move(w.values);
  co_return true;
}

task<store_reply> etcd_client::await_keys(call& c, store_request& r) {
  wait w(r.keys.size());
  for (;;) {
    store_reply reply;
    if (co_await look(c, r, w, reply)) co_return reply;
    if (home().now() >= c.deadline) break;
    for (std::size_t i = 0; i < r.keys.size(); ++i) {
      const bool is_watched = w.subscriptions[i] && !w.subscriptions[i]->watch->has_ended;
      const bool is_awaited = w.missing[i] || r.operation == store_operation::barrier;
      if (!is_awaited || is_watched) continue;
      const bool is_queue = r.operation == store_operation::pop;
      const bool counts_queue = is_queue || r.operation == store_operation::wait;
      const std::string& key = r.keys[i];
      w.subscriptions[i] =
          subscribe(is_queue ? queue_begin(key) : name_of(key),
                    counts_queue ? queue_end(key) : "", w.revision, w.changed);
    }
    try {
      const duration left =
          c.deadline == time_point::max() ? duration::max() : c.deadline - home().now();
      co_await within(w.changed.wait(), std::max(left, duration::zero()));
    } catch (const timed_out&) {
      // It looks for the last time.
    }
    w.changed.reset();
  }
  if (r.operation == store_operation::barrier) {
    gateway_.fail(c, store_error_kind::timed_out,
                  fmt::format("not all {} members have arrived", r.delta));
  }
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < r.keys.size(); ++i) {
    if (w.missing[i]) missing.push_back(r.keys[i]);
  }
  gateway_.fail(c, store_error_kind::timed_out, std::move(missing),
                "not set by any process");
}

}  // namespace manyworlds::inline v0::detail

#endif  // MANYWORLDS_HAS_ETCD
