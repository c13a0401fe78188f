#include "manyworlds/store/store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "store/store_gate.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

void store_users::add(store_gate& gate) {
  const std::lock_guard lock(mutex_);
  gates_.push_back(&gate);
}

void store_users::remove(store_gate& gate) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(gates_, &gate);
}

// Shuts the gates within the lock, so that none of them is destroyed meanwhile.
void store_users::end(bool answers) noexcept {
  const std::lock_guard lock(mutex_);
  for (store_gate* gate : gates_) gate->store_ends(answers);
  gates_.clear();
}

namespace {

store_request request_of(store_operation operation, std::string key, duration limit) {
  std::vector<std::string> keys;
  keys.push_back(std::move(key));
  return store_request(operation, std::move(keys), limit);
}

}  // namespace

task<void> store::set(std::string key, std::string value, duration limit) {
  store_request request = request_of(store_operation::set, std::move(key), limit);
  request.value = std::move(value);
  co_await perform(std::move(request));
}

task<std::string> store::get(std::string key, duration limit) {
  store_request request = request_of(store_operation::get, std::move(key), limit);
  store_reply reply = co_await perform(std::move(request));
  co_return std::move(reply.value).value();
}

task<std::optional<std::string>> store::try_get(std::string key, duration limit) {
  store_request request = request_of(store_operation::try_get, std::move(key), limit);
  store_reply reply = co_await perform(std::move(request));
  co_return std::move(reply.value);
}

task<void> store::wait(store_keys keys, duration limit) {
  store_request request(store_operation::wait, std::move(keys).list(), limit);
  co_await perform(std::move(request));
}

task<std::int64_t> store::add(std::string key, std::int64_t delta, duration limit) {
  store_request request = request_of(store_operation::add, std::move(key), limit);
  request.delta = delta;
  store_reply reply = co_await perform(std::move(request));
  co_return reply.number;
}

task<std::string> store::compare_set(std::string key, std::string expected,
                                     std::string desired, duration limit) {
  store_request request = request_of(store_operation::compare_set, std::move(key), limit);
  request.expected = std::move(expected);
  request.value = std::move(desired);
  store_reply reply = co_await perform(std::move(request));
  co_return std::move(reply.value).value();
}

task<std::string> store::compare_set_unique(std::string key, std::string expected,
                                            std::string desired, duration limit) {
  // A store that is lost at each of these tries is not asked again.
  constexpr int most_tries = 16;
  for (int tries = 1;; ++tries) {
    try {
      co_return co_await compare_set(key, expected, desired, limit);
    } catch (const store_error& e) {
      if (!e.failure().may_have_happened || tries == most_tries) throw;
    }
    const std::optional<std::string> stands = co_await try_get(key, limit);
    if (stands.value_or("") == expected) continue;
    // A key that is not set, but was expected to be, gives `expected`, as in
    // compare_set.
    co_return stands ? *stands : expected;
  }
}

task<bool> store::erase(std::string key, duration limit) {
  store_request request = request_of(store_operation::erase, std::move(key), limit);
  store_reply reply = co_await perform(std::move(request));
  co_return reply.number != 0;
}

task<bool> store::check(store_keys keys, duration limit) {
  store_request request(store_operation::check, std::move(keys).list(), limit);
  store_reply reply = co_await perform(std::move(request));
  co_return reply.number != 0;
}

task<std::int64_t> store::num_keys(duration limit) {
  store_request request(store_operation::num_keys, {}, limit);
  store_reply reply = co_await perform(std::move(request));
  co_return reply.number;
}

task<std::vector<std::string>> store::keys(duration limit) {
  store_request request(store_operation::keys, {}, limit);
  store_reply reply = co_await perform(std::move(request));
  co_return std::move(reply.values);
}

task<void> store::append(std::string key, std::string more, duration limit) {
  store_request request = request_of(store_operation::append, std::move(key), limit);
  request.value = std::move(more);
  co_await perform(std::move(request));
}

task<std::vector<std::string>> store::multi_get(store_keys keys, duration limit) {
  store_request request(store_operation::multi_get, std::move(keys).list(), limit);
  store_reply reply = co_await perform(std::move(request));
  co_return std::move(reply.values);
}

task<void> store::multi_set(std::vector<store_entry> entries, duration limit) {
  store_request request(store_operation::multi_set, {}, limit);
  request.keys.reserve(entries.size());
  request.values.reserve(entries.size());
  for (store_entry& entry : entries) {
    request.keys.push_back(std::move(entry.key));
    request.values.push_back(std::move(entry.value));
  }
  co_await perform(std::move(request));
}

task<void> store::push(std::string queue, std::string value, duration limit) {
  store_request request = request_of(store_operation::push, std::move(queue), limit);
  request.value = std::move(value);
  co_await perform(std::move(request));
}

task<std::string> store::pop(std::string queue, duration limit) {
  store_request request = request_of(store_operation::pop, std::move(queue), limit);
  store_reply reply = co_await perform(std::move(request));
  co_return std::move(reply.value).value();
}

task<std::optional<std::string>> store::try_pop(std::string queue, duration limit) {
  store_request request = request_of(store_operation::try_pop, std::move(queue), limit);
  store_reply reply = co_await perform(std::move(request));
  co_return std::move(reply.value);
}

task<std::int64_t> store::queue_size(std::string queue, duration limit) {
  store_request request =
      request_of(store_operation::queue_size, std::move(queue), limit);
  store_reply reply = co_await perform(std::move(request));
  co_return reply.number;
}

task<void> store::barrier(std::string key, std::int64_t members, duration limit) {
  store_request request = request_of(store_operation::barrier, std::move(key), limit);
  request.delta = members;
  co_await perform(std::move(request));
}

void detail::check_limits(const store_request& request, const store_limits& limits,
                          const std::string& store) {
  if (request.operation > store_operation::barrier) {
    throw store_error(store_failure(
        store_error_kind::refused, store, request.operation, request.keys,
        duration::zero(), "it is no request: an etcd store has a function for it"));
  }
  const auto too_large = [&](std::string reason) {
    throw store_error(store_failure(store_error_kind::too_large, store, request.operation,
                                    request.keys, duration::zero(), std::move(reason)));
  };
  if (request.keys.size() > limits.keys_per_request) {
    too_large(fmt::format("{} keys, at most {} are taken", request.keys.size(),
                          limits.keys_per_request));
  }
  for (const std::string& key : request.keys) {
    if (key.size() > limits.key_bytes) {
      too_large(fmt::format("a key of {} bytes, at most {} are taken", key.size(),
                            limits.key_bytes));
    }
  }
  std::size_t total = request.value.size() + request.expected.size();
  std::size_t value = std::max(request.value.size(), request.expected.size());
  for (const std::string& key : request.keys) total += key.size();
  for (const std::string& each : request.values) {
    total += each.size();
    value = std::max(value, each.size());
  }
  if (total > limits.request_bytes) {
    too_large(fmt::format("{} bytes in one request, at most {} are taken", total,
                          limits.request_bytes));
  }
  if (value > limits.value_bytes) {
    too_large(fmt::format("a value of {} bytes, at most {} are taken", value,
                          limits.value_bytes));
  }
}

void detail::keep_prefixed(std::vector<std::string>& keys, std::string_view prefix) {
  std::erase_if(keys, [&](const std::string& key) { return !key.starts_with(prefix); });
}

}  // namespace manyworlds::inline v0
