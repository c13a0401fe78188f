#include "store/tcp_store_session.hpp"

#include <cerrno>
#include <optional>
#include <span>
#include <utility>

#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "store/store_greeting.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// Bytes received at a time: few at first, more for a client that fills them.
constexpr std::size_t first_chunk_bytes = 4096;
constexpr std::size_t largest_chunk_bytes = 64 * 1024;
// Limit of the replies that wait to be sent; beyond it no further request is read.
constexpr std::size_t outgoing_bytes = 256 * 1024;
// An upper bound of what a new key costs beside its bytes.
constexpr std::size_t key_overhead = 128;

std::string host_of_client(const stream& client) {
  const std::string text = client.peer_address().text();
  return text.substr(0, text.rfind(':'));
}

std::size_t size_of(const tcp_store_message& request) noexcept {
  std::size_t size = 0;
  for (const std::string& key : request.keys) size += key.size() + key_overhead;
  for (const std::string& value : request.values) size += value.size();
  return size;
}

}  // namespace

tcp_store_session::blocked_request::blocked_request(tcp_store_session& owner) noexcept
    : waiter([](waiter& w) noexcept {
        auto& session = static_cast<blocked_request&>(w).owner;
        encode_u8(tcp_store_ready, session.outgoing_);
        session.has_outgoing_.set();
      }),
      owner(owner) {}

tcp_store_session::watched_keys::watched_keys(tcp_store_session& owner) noexcept
    : watcher([](watcher& w, const std::string& key, const std::string* before,
                 const std::string* after) {
        tcp_store_session& session = static_cast<watched_keys&>(w).owner;
        if (session.outgoing_.size() > outgoing_bytes)
          session.end("changes of keys that it watches were not taken in time");
        if (!session.error_.empty()) return;
        const tcp_store_change what = !after   ? tcp_store_change::erased
                                      : before ? tcp_store_change::updated
                                               : tcp_store_change::created;
        encode_u8(static_cast<std::uint8_t>(what), session.outgoing_);
        encode_text(key, session.outgoing_);
        encode_text(before ? *before : std::string_view(), session.outgoing_);
        encode_text(after ? *after : std::string_view(), session.outgoing_);
        session.has_outgoing_.set();
      }),
      owner(owner) {}

tcp_store_session::tcp_store_session(tcp_store_server& server, stream& client) noexcept
    : server_(server),
      client_(client),
      parser_(server.options_.limits),
      blocked_(*this),
      watched_(*this),
      host_(host_of_client(client)) {
  has_room_.set();
}

tcp_store_session::~tcp_store_session() {
  const bool was_woken = !blocked_.is_waiting() && !may_take_from_.empty();
  server_.table_.forget(blocked_);
  server_.table_.forget(watched_);
  if (was_woken) server_.table_.pass_on(may_take_from_);
  if (is_legacy_) server_.legacy_hosts_.erase(server_.legacy_hosts_.find(host_));
  MW_ASSERT(server_.held_bytes_ >= accounted_, "a session's part is within the whole");
  server_.held_bytes_ -= accounted_;
}

task<void> tcp_store_session::run() {
  incoming_.resize(first_chunk_bytes);
  co_await scope::run([this](scope& both) -> task<void> {
    both.spawn(write(both));
    both.spawn(read(both));
    co_return;
  });
}

task<void> tcp_store_session::read(scope& both) {
  co_await read_requests();
  both.cancel();
}

task<void> tcp_store_session::read_requests() {
  const time_point handshake_until =
      later(server_.home_.now(), server_.options_.handshake_limit);
  for (;;) {
    const io_result received = co_await receive(handshake_until);
    if (!received.ok() || received.count() == 0) co_return;
    std::span<const std::byte> bytes = std::span(incoming_).first(received.count());
    if (!is_admitted_) {
      const bool is_greeting = bytes.front() == store_greeting_begin;
      if (is_greeting) {
        const bool is_known = co_await admit(bytes, handshake_until);
        if (!is_known) co_return;
      }
      if (!is_greeting && !server_.options_.secret.empty()) {
        end("it does not prove the secret");
        co_return;
      }
      is_admitted_ = true;
      if (is_greeting) continue;
    }
    while (parser_.feed(bytes)) {
      if (!apply(parser_.take()) || !account()) co_return;
      // A few bytes of requests may ask for gigabytes of replies.
      if (outgoing_.size() > outgoing_bytes) {
        has_room_.reset();
        has_outgoing_.set();
        co_await has_room_;
      }
    }
    if (parser_.failed()) {
      end(parser_.error());
      co_return;
    }
    if (!is_legacy_ && parser_.dialect() == tcp_store_dialect::legacy) {
      is_legacy_ = true;
      server_.legacy_hosts_.insert(host_);
    }
    if (!account()) co_return;
    // A client that asks one question after the other does so again when it has its
    // answer. Among several the next question comes anyway.
    if (std::exchange(server_.last_speaker_, this) == this) server_.home_.expect_soon();
    if (!outgoing_.empty()) has_outgoing_.set();
    if (received.count() == incoming_.size() && incoming_.size() < largest_chunk_bytes) {
      incoming_.resize(incoming_.size() * 2);
    }
  }
}

/// Receives. A client between requests may stay silent without a limit; one within a
/// handshake or a request may not. It returns 0 bytes, with an error set, if that time
/// is over.
task<io_result> tcp_store_session::receive(time_point handshake_until) {
  const bool is_greeted = parser_.dialect() != tcp_store_dialect::unknown;
  if (is_greeted && !parser_.in_request())
    co_return co_await client_.receive_some(incoming_);
  duration limit =
      is_greeted ? server_.options_.stall_limit : handshake_until - server_.home_.now();
  for (;;) {
    try {
      co_return co_await within(client_.receive_some(incoming_), limit);
    } catch (const timed_out&) {}
    if (!may_stay_silent()) break;
    limit = server_.options_.handshake_limit;
  }
  end(is_greeted ? "a request was begun, but not finished in time"
                 : "no handshake in time");
  co_return io_result::success(0);
}

/// Answers the greeting of a client that proves the secret. A client sends no more before
/// the answer. It returns false, with an error set, if the client is not admitted.
task<bool> tcp_store_session::admit(std::span<const std::byte> begun,
                                    time_point handshake_until) {
  store_greeting_end ended = store_greeting_end::broken;
  try {
    ended = co_await within(answer_greeting(client_, server_.options_.secret, begun),
                            handshake_until - server_.home_.now());
  } catch (const timed_out&) {}
  if (ended == store_greeting_end::proven) co_return true;
  co_return end(std::string(text_of(ended)));
}

/// A legacy client has a second connection, for the keys that it watches. Mostly there
/// are none, and it is silent: it stays as long as its host has a legacy client that
/// speaks.
bool tcp_store_session::may_stay_silent() const noexcept {
  return parser_.dialect() == tcp_store_dialect::unknown && !parser_.in_request() &&
         server_.legacy_hosts_.contains(host_);
}

task<void> tcp_store_session::write(scope& both) {
  for (;;) {
    co_await has_outgoing_;
    has_outgoing_.reset();
    if (!error_.empty()) {
      both.cancel();
      co_return;
    }
    sending_.swap(outgoing_);
    has_room_.set();
    std::span<const std::byte> left = std::as_bytes(std::span(sending_));
    while (!left.empty()) {
      io_result sent;
      try {
        sent = co_await within(client_.send_some(left), server_.options_.stall_limit);
      } catch (const timed_out&) {
        end("replies were not taken in time");
        sent = io_result::failure(ETIMEDOUT);
      }
      if (!sent.ok()) {
        both.cancel();
        co_return;
      }
      left = left.subspan(sent.count());
    }
    // Memory for large replies is given back; what small ones need is kept.
    sending_.clear();
    if (sending_.capacity() > outgoing_bytes) sending_.shrink_to_fit();
    if (!account()) {
      both.cancel();
      co_return;
    }
  }
}

/// Returns false if the server can hold no more for its connections, and this one wants
/// more.
bool tcp_store_session::account() {
  const std::size_t blocked = blocked_.is_waiting() ? blocked_bytes_ : 0;
  const std::size_t holds = incoming_.capacity() + parser_.held_bytes() + blocked +
                            watched_.bytes + outgoing_.capacity() + sending_.capacity();
  const bool grows = holds > accounted_;
  MW_ASSERT(server_.held_bytes_ >= accounted_, "a session's part is within the whole");
  server_.held_bytes_ += holds;
  server_.held_bytes_ -= std::exchange(accounted_, holds);
  if (!grows || server_.held_bytes_ <= server_.options_.connection_bytes) return true;
  return end(
      "the connections already hold all the memory that the store may use for them");
}

/// Applies a request. Returns false if the connection must end.
bool tcp_store_session::apply(tcp_store_message request) {
  key_value_table& table = server_.table_;
  // A legacy client cannot cancel a wait that it gives up: it asks the next thing. A late
  // answer to the wait would be taken for the answer to that.
  if (parser_.dialect() == tcp_store_dialect::legacy && blocked_.is_waiting()) {
    table.forget(blocked_);
    may_take_from_.clear();
  }
  if (!may_take_from_.empty() && !blocked_.is_waiting()) {
    const std::string queue = std::exchange(may_take_from_, {});
    const bool takes =
        request.opcode == tcp_store_opcode::queue_pop && request.keys.front() == queue;
    if (!takes) table.pass_on(queue);
  }
  switch (request.opcode) {
    case tcp_store_opcode::validate:
      return true;
    case tcp_store_opcode::ping:
      encode_u32(static_cast<std::uint32_t>(request.number), outgoing_);
      return true;
    case tcp_store_opcode::get:
    case tcp_store_opcode::multi_get:
      return reply_values(request.keys);
    case tcp_store_opcode::check:
      encode_u8(table.contains_all(request.keys) ? tcp_store_ready : tcp_store_not_ready,
                outgoing_);
      return true;
    case tcp_store_opcode::wait:
    case tcp_store_opcode::barrier:
      return block(request);
    case tcp_store_opcode::cancel_wait:
      if (blocked_.is_waiting()) may_take_from_.clear();
      table.forget(blocked_);
      encode_u8(tcp_store_wait_cancelled, outgoing_);
      return true;
    case tcp_store_opcode::num_keys:
      encode_u64(table.key_count(), outgoing_);
      return true;
    case tcp_store_opcode::delete_key:
      encode_u64(table.erase(request.keys.front()) ? 1 : 0, outgoing_);
      return true;
    case tcp_store_opcode::queue_pop:
      reply_queue_pop(request.keys.front());
      return true;
    case tcp_store_opcode::watch_key:
      watch(request.keys.front());
      return true;
    case tcp_store_opcode::queue_size:
      encode_u64(table.queue_size(request.keys.front()), outgoing_);
      return true;
    case tcp_store_opcode::list_keys:
      return reply_key_list();
    default:
      return change(request);
  }
}

/// Says whether the table can take what the request may add to it.
bool tcp_store_session::has_room_for(const tcp_store_message& request) {
  return server_.table_.bytes() + size_of(request) <= server_.options_.bytes;
}

/// Applies a request that may make the table grow.
bool tcp_store_session::change(tcp_store_message& request) {
  key_value_table& table = server_.table_;
  if (!has_room_for(request)) return end("the store is full");
  switch (request.opcode) {
    case tcp_store_opcode::set:
      table.set(std::move(request.keys[0]), std::move(request.values[0]));
      return true;
    case tcp_store_opcode::multi_set:
      for (std::size_t i = 0; i < request.keys.size(); ++i) {
        table.set(std::move(request.keys[i]), std::move(request.values[i]));
      }
      return true;
    case tcp_store_opcode::compare_set: {
      std::string& desired = request.values[1];
      encode_text(
          table.compare_set(request.keys[0], request.values[0], std::move(desired)),
          outgoing_);
      return true;
    }
    case tcp_store_opcode::add:
      if (const auto sum = table.add(request.keys[0], request.number)) {
        encode_u64(static_cast<std::uint64_t>(*sum), outgoing_);
        return true;
      }
      // The protocol has no reply for this; PyTorch's server closes the connection too.
      return end("add to a value that is no number, or beyond 64 bits");
    case tcp_store_opcode::append: {
      const std::string* value = table.find(request.keys[0]);
      const std::size_t size = (value ? value->size() : 0) + request.values[0].size();
      if (size > server_.options_.limits.value_bytes)
        return end("append beyond a value's limit");
      table.append(request.keys[0], request.values[0]);
      return true;
    }
    case tcp_store_opcode::queue_push:
      table.push(request.keys[0], std::move(request.values[0]));
      return true;
    default:
      return end("a request that is not served");
  }
}

bool tcp_store_session::block(tcp_store_message& request) {
  if (blocked_.is_waiting()) return end("a second wait on a connection that waits");
  // The table keeps its keys twice, and a place in a list for each.
  blocked_bytes_ = 2 * size_of(request);
  std::optional<bool> at_once;
  if (request.opcode == tcp_store_opcode::wait) {
    // A client waits before it takes from a queue, and PyTorch's takes a wake-up for a
    // value that is its own. If it then asks for something else, or is gone, the wake-up
    // is another's.
    const bool may_take = request.keys.size() == 1;
    std::string queue = may_take ? request.keys.front() : std::string();
    at_once = server_.table_.await(blocked_, std::move(request.keys), may_take);
    // One that does not wait is woken by no push.
    if (!*at_once) may_take_from_ = std::move(queue);
  } else {
    // The counter of a barrier is a key like others.
    if (!has_room_for(request)) return end("the store is full");
    at_once = server_.table_.arrive(blocked_, request.keys.front(), request.number);
    if (!at_once) return end("a barrier under a key that holds no number");
  }
  if (*at_once) encode_u8(tcp_store_ready, outgoing_);
  return true;
}

bool tcp_store_session::reply_values(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    const std::string* value = server_.table_.find(key);
    encode_text(value ? std::string_view(*value) : std::string_view(), outgoing_);
    if (outgoing_.size() > server_.options_.limits.request_bytes + outgoing_bytes) {
      return end("a reply larger than a request may be");
    }
  }
  return true;
}

bool tcp_store_session::reply_key_list() {
  const std::vector<std::string> keys = server_.table_.keys();
  encode_u64(keys.size(), outgoing_);
  for (const std::string& key : keys) {
    encode_text(key, outgoing_);
    if (outgoing_.size() > server_.options_.limits.request_bytes + outgoing_bytes) {
      return end("a reply larger than a request may be");
    }
  }
  return true;
}

void tcp_store_session::reply_queue_pop(const std::string& key) {
  encode_u64(server_.table_.queue_size(key), outgoing_);
  if (const auto value = server_.table_.pop(key)) encode_text(*value, outgoing_);
}

void tcp_store_session::watch(const std::string& key) {
  server_.table_.watch(watched_, key);
  watched_.bytes += 2 * (key.size() + key_overhead);
  encode_u8(static_cast<std::uint8_t>(tcp_store_change::watching), outgoing_);
}

bool tcp_store_session::end(std::string why) {
  if (error_.empty()) error_ = std::move(why);
  return false;
}

}  // namespace manyworlds::inline v0::detail
