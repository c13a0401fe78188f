#include "store/etcd_features.hpp"

#if MANYWORLDS_HAS_ETCD

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "store/etcd_client.hpp"
#include "store/etcd_wait.hpp"
#include "store/operation_facts.hpp"
#include "store/stored_number.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// A client with a compare that fails has lost against another that succeeded.
constexpr int most_races = 1000;
constexpr std::int64_t keys_per_page = 4096;
// Values may be large, and a page of them is to arrive within the limit of an answer.
constexpr std::int64_t values_per_page = 256;

// A NUL byte in a name: of a key, or what parts a queue's name from its values.
constexpr char of_key = '\2';
constexpr char of_queue = '\1';

}  // namespace

// -------------------------------------------------------------------------------- Names

std::string etcd_client::name_of(std::string_view key) const {
  std::string name = options_.prefix;
  for (const char c : key) {
    name += c;
    if (c == '\0') name += of_key;
  }
  return name;
}

std::string etcd_client::queue_begin(std::string_view queue) const {
  return name_of(queue) + std::string{'\0', of_queue};
}
std::string etcd_client::queue_end(std::string_view queue) const {
  return name_of(queue) + std::string{'\0', of_key};
}

/// Returns the key; nothing for a queue's value.
std::optional<std::string> etcd_client::key_of(std::string_view name) const {
  if (!name.starts_with(options_.prefix)) return std::nullopt;
  name.remove_prefix(options_.prefix.size());
  std::string key;
  for (std::size_t i = 0; i < name.size(); ++i) {
    key += name[i];
    if (name[i] != '\0') continue;
    if (++i == name.size() || name[i] != of_key) return std::nullopt;
  }
  return key;
}

// -------------------------------------------------------------------------- Operations

task<store_reply> etcd_client::perform(store_request request) {
  call c(request.operation, request.keys, request.limit, home().now());
  duration limit = request.limit;
  if (waits_for_others(request.operation) &&
      limit < duration::max() - etcd::last_question)
    limit += etcd::last_question;
  try {
    co_return co_await within(run_leased(c, request), limit);
  } catch (const timed_out&) {
    // It is told below.
  }
  std::string why = gateway_.trouble();
  if (why.empty()) why = "no answer";
  gateway_.fail(c, store_error_kind::unreachable, std::move(why));
}

/// A lease that was lost has taken its keys along. The next ones get another.
task<void> etcd_client::lease_keys(duration limit) {
  const turnstile::place alone = co_await leasing_.enter();
  const bool stands =
      keys_lease_ && !keys_lease_->is_lost && home().now() < keys_lease_->expiry.load();
  if (!stands) keys_lease_ = co_await grant(options_.key_lease, limit);
}

std::string etcd_client::put_body(std::string_view name, std::string_view value) const {
  return etcd::put_body(name, value, keys_lease_ ? keys_lease_->id : 0);
}

/// A lease may be lost unseen: this machine stood still, or etcd's data are new. etcd has
/// then set nothing, and is asked once more, with another lease.
task<store_reply> etcd_client::run_leased(call& c, store_request& r) {
  if (options_.key_lease <= duration::zero() || !sets_keys(r.operation))
    co_return co_await run(c, r);
  co_await lease_keys(r.limit);
  const std::shared_ptr<etcd_lease_state> lease = keys_lease_;
  try {
    co_return co_await run(c, r);
  } catch (const store_error& e) {
    if (!etcd::says_lease_is_gone(e.failure().reason)) throw;
  }
  lose(*lease, "etcd has ended it");
  co_await lease_keys(r.limit);
  co_return co_await run(c, r);
}

task<store_reply> etcd_client::run(call& c, store_request& r) {
  switch (r.operation) {
    case store_operation::set:
      return set(c, r);
    case store_operation::multi_set:
      return multi_set(c, r);
    case store_operation::try_get:
    case store_operation::check:
      return read_all(c, r);
    case store_operation::get:
    case store_operation::multi_get:
    case store_operation::wait:
    case store_operation::pop:
      return await_keys(c, r);
    case store_operation::add:
    case store_operation::append:
      return change(c, r);
    case store_operation::compare_set:
      return compare_set(c, r);
    case store_operation::erase:
      return erase(c, r);
    case store_operation::push:
      return push(c, r);
    case store_operation::try_pop:
      return try_pop(c, r);
    case store_operation::queue_size:
      return queue_size(c, r);
    case store_operation::barrier:
      return arrive(c, r);
    default:
      MW_ASSERT(r.operation == store_operation::num_keys ||
                    r.operation == store_operation::keys,
                "all others are served");
      return keys(c, r);
  }
}

task<etcd::range_answer> etcd_client::range(call& c, const etcd::range_request& r) {
  const std::string text =
      co_await gateway_.ask(c, "/v3/kv/range", etcd::range_body(r), true);
  std::string bad_text;
  try {
    co_return etcd::read_range(text);
  } catch (const etcd::bad_answer& bad) {
    bad_text = bad.what();
  }
  gateway_.fail(c, store_error_kind::protocol, "a range was not answered: " + bad_text);
}

task<etcd::transaction_answer> etcd_client::transact(call& c, std::string body,
                                                     bool may_repeat) {
  const std::string text =
      co_await gateway_.ask(c, "/v3/kv/txn", std::move(body), may_repeat);
  std::string bad_text;
  try {
    co_return etcd::read_transaction(text);
  } catch (const etcd::bad_answer& bad) {
    bad_text = bad.what();
  }
  gateway_.fail(c, store_error_kind::protocol,
                "a transaction was not answered: " + bad_text);
}

task<store_reply> etcd_client::set(call& c, store_request& r) {
  co_await gateway_.ask(c, "/v3/kv/put", put_body(name_of(r.keys.front()), r.value),
                        true);
  co_return store_reply();
}

/// A key may be set once in one request: the last value that is given holds.
task<store_reply> etcd_client::multi_set(call& c, store_request& r) {
  std::unordered_map<std::string, std::size_t> last;
  for (std::size_t i = 0; i < r.keys.size(); ++i) last[r.keys[i]] = i;
  etcd::transaction_body body;
  std::size_t operations = 0;
  for (std::size_t i = 0; i < r.keys.size(); ++i) {
    if (last[r.keys[i]] != i) continue;
    const std::string put = put_body(name_of(r.keys[i]), r.values[i]);
    // In base64 four bytes stand for three.
    const bool is_full = operations == etcd_most_operations ||
                         body.thens.size() + put.size() > options_.request_bytes;
    if (is_full && operations > 0) {
      std::string full = body.text();
      body = etcd::transaction_body();
      co_await transact(c, std::move(full), true);
      operations = 0;
    }
    body.then_put(put);
    ++operations;
  }
  if (operations > 0) co_await transact(c, body.text(), true);
  co_return store_reply();
}

task<store_reply> etcd_client::read_all(call& c, store_request& r) {
  if (r.operation == store_operation::try_get) {
    etcd::range_request one;
    one.key = name_of(r.keys.front());
    etcd::range_answer seen = co_await range(c, one);
    store_reply reply;
    if (!seen.entries.empty()) reply.value = std::move(seen.entries.front().value);
    co_return reply;
  }
  wait w(r.keys.size());
  co_await look_at_each(c, r, w);
  const bool all = std::find(w.missing.begin(), w.missing.end(), true) == w.missing.end();
  co_return store_reply(std::int64_t{all});
}

task<store_reply> etcd_client::erase(call& c, store_request& r) {
  const std::string text = co_await gateway_.ask(
      c, "/v3/kv/deleterange", etcd::delete_body(name_of(r.keys.front())), true);
  std::string bad_text;
  try {
    co_return store_reply(std::int64_t{etcd::read_delete(text).count > 0});
  } catch (const etcd::bad_answer& bad) {
    bad_text = bad.what();
  }
  gateway_.fail(c, store_error_kind::protocol, "an erase was not answered: " + bad_text);
}

/// An empty `expected` matches a key that is not set, and an empty value.
task<store_reply> etcd_client::compare_set(call& c, store_request& r) {
  const std::string name = name_of(r.keys.front());
  etcd::range_request present;
  present.key = name;
  const auto attempt = [&](etcd_target target, const std::string& value) {
    etcd::transaction_body body;
    body.compare(etcd::compare_body(target, etcd_relation::equal, name, 0, value));
    body.then_put(put_body(name, r.value));
    body.else_range(etcd::range_body(present));
    return transact(c, body.text(), false);
  };
  const auto value_in = [](etcd::transaction_answer& seen) -> std::optional<std::string> {
    if (seen.steps.empty() || seen.steps.front().entries.empty()) return std::nullopt;
    return std::move(seen.steps.front().entries.front().value);
  };
  for (int tries = 0; tries < most_races; ++tries) {
    if (r.expected.empty()) {
      auto first = attempt(etcd_target::version, "");
      etcd::transaction_answer seen = co_await std::move(first);
      if (seen.succeeded) co_return store_reply(r.value);
      std::optional<std::string> value = value_in(seen);
      if (value && !value->empty()) co_return store_reply(std::move(value));
    }
    auto second = attempt(etcd_target::value, r.expected);
    etcd::transaction_answer seen = co_await std::move(second);
    if (seen.succeeded) co_return store_reply(r.value);
    std::optional<std::string> value = value_in(seen);
    if (value) co_return store_reply(std::move(value));
    if (!r.expected.empty()) co_return store_reply(r.expected);
    // It was erased between the two.
  }
  gateway_.fail(c, store_error_kind::unreachable,
                "other clients change the key all the time");
}

std::string etcd_client::changed_value(const call& c, const store_request& r,
                                       const std::optional<std::string>& before,
                                       std::int64_t& number) const {
  if (r.operation == store_operation::append) {
    std::string value = before.value_or("");
    if (value.size() + r.value.size() > options_.limits.value_bytes)
      gateway_.fail(c, store_error_kind::refused, "the value would exceed its limit");
    return value += r.value;
  }
  const std::optional<std::int64_t> sum = stored_sum(before, r.delta);
  if (!sum)
    gateway_.fail(c, store_error_kind::refused,
                  r.operation == store_operation::barrier
                      ? "the value is no number"
                      : "the value is no number, or the sum exceeds 64 bits");
  number = *sum;
  return std::to_string(*sum);
}

task<store_reply> etcd_client::change(call& c, store_request& r) {
  const std::string name = name_of(r.keys.front());
  std::weak_ptr<turnstile>& listed = key_locks_[name];
  std::shared_ptr<turnstile> lock = listed.lock();
  if (!lock) listed = lock = std::make_shared<turnstile>(1);
  // Entries of locks that are gone are few: each operation removes its own.
  const struct forgetting {
    ~forgetting() {
      lock.reset();
      if (locks[name].expired()) locks.erase(name);
    }
    std::map<std::string, std::weak_ptr<turnstile>>& locks;
    const std::string& name;
    std::shared_ptr<turnstile>& lock;
  } forgets{key_locks_, name, lock};
  const turnstile::place alone = co_await lock->enter();
  etcd::range_request present;
  present.key = name;
  etcd::range_answer seen = co_await range(c, present);
  for (int races = 0; races < most_races; ++races) {
    std::optional<std::string> before;
    std::int64_t revision = 0;
    if (!seen.entries.empty()) {
      before = std::move(seen.entries.front().value);
      revision = seen.entries.front().mod_revision;
    }
    store_reply reply;
    const std::string value = changed_value(c, r, before, reply.number);
    etcd::transaction_body body;
    body.compare(etcd::compare_body(etcd_target::mod_revision, etcd_relation::equal, name,
                                    revision, ""));
    body.then_put(put_body(name, value));
    body.else_range(etcd::range_body(present));
    etcd::transaction_answer done = co_await transact(c, body.text(), false);
    if (done.succeeded) co_return reply;
    if (done.steps.size() != 1)
      gateway_.fail(c, store_error_kind::protocol,
                    "an answer has other steps than asked");
    seen = std::move(done.steps.front());
    // Clients that meet at one key part again.
    const int most_us = 200 * std::min(races + 1, 50);
    co_await sleep_for(std::chrono::microseconds(
        std::uniform_int_distribution<int>(0, most_us)(random_)));
  }
  gateway_.fail(c, store_error_kind::unreachable,
                "other clients change the key all the time");
}

/// The values of a queue are ordered by the revisions at which they were made; their
/// names only have to differ.
task<store_reply> etcd_client::push(call& c, store_request& r) {
  const std::string name =
      queue_begin(r.keys.front()) + fmt::format("{:016x}{:016x}", random_(), random_());
  etcd::transaction_body body;
  body.then_put(put_body(name, r.value));
  co_await transact(c, body.text(), false);
  co_return store_reply();
}

/// Its number is the revision at which the queue was empty.
task<store_reply> etcd_client::try_pop(call& c, store_request& r) {
  etcd::range_request oldest;
  oldest.key = queue_begin(r.keys.front());
  oldest.end = queue_end(r.keys.front());
  oldest.limit = 1;
  oldest.keys_only = true;
  oldest.oldest_first = true;
  for (int races = 0; races < most_races; ++races) {
    const etcd::range_answer seen = co_await range(c, oldest);
    if (seen.entries.empty()) co_return store_reply(seen.revision);
    const etcd_entry& first = seen.entries.front();
    etcd::transaction_body body;
    body.compare(etcd::compare_body(etcd_target::mod_revision, etcd_relation::equal,
                                    first.key, first.mod_revision, ""));
    body.then_delete(etcd::delete_body(first.key));
    etcd::transaction_answer done = co_await transact(c, body.text(), false);
    if (!done.succeeded) continue;
    if (done.steps.size() != 1 || done.steps.front().entries.size() != 1)
      gateway_.fail(c, store_error_kind::protocol, "a value was erased and not told");
    co_return store_reply(std::move(done.steps.front().entries.front().value));
  }
  gateway_.fail(c, store_error_kind::unreachable, "other clients are always faster");
}

task<store_reply> etcd_client::queue_size(call& c, store_request& r) {
  etcd::range_request all;
  all.key = queue_begin(r.keys.front());
  all.end = queue_end(r.keys.front());
  all.count_only = true;
  const etcd::range_answer seen = co_await range(c, all);
  co_return store_reply(seen.count);
}

/// Lists a range at one revision, page by page.
task<etcd_listing> etcd_client::listing(call& c, std::string begin, std::string end,
                                        bool keys_only) {
  etcd_listing all;
  etcd::range_request page;
  page.key = std::move(begin);
  page.end = std::move(end);
  page.keys_only = keys_only;
  page.limit = keys_only ? keys_per_page : values_per_page;
  for (;;) {
    etcd::range_answer seen = co_await range(c, page);
    if (page.revision == 0) all.revision = page.revision = seen.revision;
    if (!seen.entries.empty()) page.key = seen.entries.back().key + std::string(1, '\0');
    const bool is_last = !seen.has_more || seen.entries.empty();
    for (etcd_entry& e : seen.entries) {
      std::optional<std::string> key = key_of(e.key);
      if (!key) continue;
      e.key = std::move(*key);
      all.entries.push_back(std::move(e));
    }
    if (is_last) co_return all;
  }
}

task<store_reply> etcd_client::keys(call& c, store_request& r) {
  const std::string begin = r.keys.empty() ? options_.prefix : name_of(r.keys.front());
  etcd_listing all = co_await listing(c, begin, etcd::end_of_prefix(begin), true);
  store_reply reply;
  if (r.operation == store_operation::num_keys) {
    reply.number = static_cast<std::int64_t>(all.entries.size());
    co_return reply;
  }
  for (etcd_entry& e : all.entries) reply.values.push_back(std::move(e.key));
  co_return reply;
}

task<store_reply> etcd_client::arrive(call& c, store_request& r) {
  store_request one = r;
  one.delta = 1;
  const store_reply count = co_await change(c, one);
  if (count.number >= r.delta) co_return store_reply();
  co_return co_await await_keys(c, r);
}

// ----------------------------------------------------------------------- What etcd adds

task<etcd_listing> etcd_client::list(std::string prefix, duration limit) {
  call c(store_operation::list, {prefix}, limit, home().now());
  const std::string begin = name_of(prefix);
  co_return co_await listing(c, begin, etcd::end_of_prefix(begin), false);
}

task<etcd_outcome> etcd_client::commit(etcd_transaction transaction, duration limit) {
  call c(store_operation::transaction, {}, limit, home().now());
  etcd::transaction_body body;
  for (const auto& compared : transaction.comparisons_) {
    c.keys.push_back(compared.key);
    body.compare(etcd::compare_body(compared.target, compared.relation,
                                    name_of(compared.key), compared.number,
                                    compared.value));
  }
  bool changes = false;
  const auto add = [&](const std::vector<etcd_transaction::step>& steps, auto add_range,
                       auto add_put, auto add_delete) {
    for (const auto& step : steps) {
      const std::string name = name_of(step.key);
      etcd::range_request present;
      present.key = name;
      changes = changes || step.what != store_operation::get;
      if (step.what == store_operation::get) {
        (body.*add_range)(etcd::range_body(present));
      } else if (step.what == store_operation::set) {
        (body.*add_put)(etcd::put_body(name, step.value, step.lease));
      } else {
        (body.*add_delete)(etcd::delete_body(name));
      }
    }
  };
  using parts = etcd::transaction_body;
  add(transaction.then_, &parts::then_range, &parts::then_put, &parts::then_delete);
  add(transaction.otherwise_, &parts::else_range, &parts::else_put, &parts::else_delete);
  etcd::transaction_answer done = co_await transact(c, body.text(), !changes);
  etcd_outcome outcome;
  outcome.succeeded = done.succeeded;
  outcome.revision = done.revision;
  for (etcd::range_answer& step : done.steps) {
    outcome.entries.emplace_back();
    if (step.entries.empty()) continue;
    outcome.entries.back() = std::move(step.entries.front());
    outcome.entries.back()->key = key_of(outcome.entries.back()->key).value_or("");
  }
  co_return outcome;
}

task<void> etcd_client::compact(std::int64_t revision, duration limit) {
  call c(store_operation::list, {}, limit, home().now());
  co_await gateway_.ask(c, "/v3/kv/compaction",
                        fmt::format(R"({{"revision":"{}"}})", revision), true);
}

task<std::string> etcd_client::server_version(duration limit) {
  call c(store_operation::list, {}, limit, home().now());
  co_await gateway_.ask(c, "/v3/maintenance/status", "{}", true);
  co_return gateway_.version();
}

}  // namespace manyworlds::inline v0::detail

#endif  // MANYWORLDS_HAS_ETCD
