#include "store/tcp_store_exchange.hpp"

#include <fmt/format.h>

#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "store/tcp_store_protocol.hpp"

namespace manyworlds::inline v0::detail {

namespace {

tcp_store_opcode opcode_of(store_operation operation) noexcept {
  switch (operation) {
    case store_operation::set:
      return tcp_store_opcode::set;
    case store_operation::add:
      return tcp_store_opcode::add;
    case store_operation::compare_set:
      return tcp_store_opcode::compare_set;
    case store_operation::erase:
      return tcp_store_opcode::delete_key;
    case store_operation::check:
      return tcp_store_opcode::check;
    case store_operation::num_keys:
      return tcp_store_opcode::num_keys;
    case store_operation::wait:
      return tcp_store_opcode::wait;
    case store_operation::append:
      return tcp_store_opcode::append;
    case store_operation::multi_set:
      return tcp_store_opcode::multi_set;
    case store_operation::push:
      return tcp_store_opcode::queue_push;
    case store_operation::queue_size:
      return tcp_store_opcode::queue_size;
    case store_operation::keys:
      return tcp_store_opcode::list_keys;
    case store_operation::barrier:
      return tcp_store_opcode::barrier;
    case store_operation::multi_get:
      return tcp_store_opcode::multi_get;
    case store_operation::pop:
    case store_operation::try_pop:
      return tcp_store_opcode::queue_pop;
    case store_operation::get:
    case store_operation::try_get:
    case store_operation::transaction:
    case store_operation::lease:
    case store_operation::watch:
    case store_operation::list:
      break;
  }
  return tcp_store_opcode::get;
}

bool has_reply(store_operation operation) noexcept {
  return operation != store_operation::set && operation != store_operation::append &&
         operation != store_operation::multi_set && operation != store_operation::push;
}

std::string encoded(const tcp_store_question& q, tcp_store_opcode opcode) {
  const store_request& r = q.request;
  tcp_store_message message(opcode, q.wire_keys);
  message.number = r.delta;
  if (r.operation == store_operation::compare_set) message.values.push_back(r.expected);
  if (r.operation == store_operation::multi_set) {
    message.values = r.values;
  } else {
    message.values.push_back(r.value);
  }
  std::string bytes;
  encode(message, bytes);
  return bytes;
}

/// Returns the keys without the "/" that our names and PyTorch's have; its own key of a
/// world's size has none and is left out.
task<store_reply> read_key_list(const store_request& r, tcp_store_connection& c) {
  const std::int64_t count = co_await c.read_i64();
  store_reply reply;
  for (std::int64_t i = 0; i < count; ++i) {
    std::string key = co_await c.read_text();
    if (!key.starts_with('/')) continue;
    key.erase(0, 1);
    reply.values.push_back(std::move(key));
  }
  if (!r.keys.empty()) keep_prefixed(reply.values, r.keys.front());
  co_return reply;
}

task<std::optional<store_reply>> fetch_from_queue(const tcp_store_question& q,
                                                  tcp_store_connection& c) {
  co_await c.send(encoded(q, tcp_store_opcode::queue_pop));
  const std::int64_t size = co_await c.read_i64();
  if (size == 0) co_return std::nullopt;
  if (size < 0) throw protocol_broken(fmt::format("a queue of {} values", size));
  co_return store_reply(co_await c.read_text());
}

task<store_reply> read_values(const tcp_store_question& q, tcp_store_connection& c) {
  store_reply reply;
  if (q.request.operation == store_operation::multi_get) {
    for (std::size_t i = 0; i < q.wire_keys.size(); ++i)
      reply.values.push_back(co_await c.read_text());
  } else {
    reply.value = co_await c.read_text();
  }
  co_return reply;
}

}  // namespace

tcp_store_question::tcp_store_question(const store_request& r, tcp_store_names names)
    : request(r) {
  wire_keys.reserve(r.keys.size());
  // The prefix of a listing is ours: the protocol lists all keys.
  if (r.operation == store_operation::keys) return;
  const std::string before = names == tcp_store_names::with_slash ? "/" : "";
  for (const std::string& key : r.keys) wire_keys.push_back(before + key);
}

task<store_reply> exchange(const tcp_store_question& q, tcp_store_connection& c,
                           std::uint32_t nonce) {
  const store_request& r = q.request;
  std::string bytes = encoded(q, opcode_of(r.operation));
  if (!has_reply(r.operation)) {
    // The reply of the ping says that what was sent before it has been carried out.
    tcp_store_message ping(tcp_store_opcode::ping);
    ping.number = nonce;
    encode(ping, bytes);
  }
  co_await c.send(bytes);
  if (!has_reply(r.operation)) {
    co_await c.expect_ping(nonce);
    co_return store_reply();
  }
  switch (r.operation) {
    case store_operation::compare_set:
      co_return store_reply(co_await c.read_text());
    case store_operation::check:
      co_return store_reply(std::int64_t{co_await c.read_u8() == tcp_store_ready});
    case store_operation::keys:
      co_return co_await read_key_list(r, c);
    default:
      co_return store_reply(co_await c.read_i64());
  }
}

task<std::optional<store_reply>> fetch(const tcp_store_question& q,
                                       tcp_store_connection& c, bool& closes_on_missing) {
  const store_operation what = q.request.operation;
  if (what == store_operation::pop || what == store_operation::try_pop)
    co_return co_await fetch_from_queue(q, c);
  std::string check;
  encode(tcp_store_message(tcp_store_opcode::check, q.wire_keys), check);
  const std::string get = encoded(q, opcode_of(what));
  const bool asks_twice = closes_on_missing;
  const std::string first = asks_twice ? check : check + get;
  co_await c.send(first);
  const bool is_set = co_await c.read_u8() == tcp_store_ready;
  if (asks_twice) {
    if (!is_set) co_return std::nullopt;
    co_await c.send(get);
  }
  std::optional<store_reply> reply;
  try {
    reply = co_await read_values(q, c);
  } catch (const connection_lost&) {
    if (is_set) throw;
    closes_on_missing = true;
    c.close();
  }
  if (!is_set) reply.reset();
  co_return reply;
}

task<std::vector<std::string>> missing_keys(const tcp_store_question& q,
                                            tcp_store_connection& c) {
  MW_ASSERT(q.wire_keys.size() == q.request.keys.size(), "a key has one wire name");
  std::string bytes;
  for (const std::string& key : q.wire_keys) {
    tcp_store_message check(tcp_store_opcode::check);
    check.keys.push_back(key);
    encode(check, bytes);
  }
  co_await c.send(bytes);
  std::vector<std::string> missing;
  for (const std::string& key : q.request.keys) {
    if (co_await c.read_u8() != tcp_store_ready) missing.push_back(key);
  }
  co_return missing;
}

}  // namespace manyworlds::inline v0::detail
