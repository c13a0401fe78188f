#include "serve/server_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include "manyworlds/coro/stop.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

using call_wire::answer_head;
using call_wire::answer_kind;
using call_wire::control_entry;
using call_wire::order_head;
using call_wire::order_kind;

server_session::server_session(call_server::state& server, world& w)
    : server_(server),
      peer_(w),
      slots_(
          std::clamp<std::size_t>(server.options.concurrent, 1, call_wire::most_slots)),
      is_load_due_(server.has_load) {
  server_.sessions.push_back(this);
}

server_session::~server_session() {
  [[maybe_unused]] const auto erased = std::erase(server_.sessions, this);
  MW_ASSERT(erased == 1, "a session is listed once, until its end");
  server_.session_ended.set();
  server_.session_ended.reset();
}

task<void> server_session::run() {
  auto body = [this](scope& s) -> task<void> {
    s.spawn(write());
    s.spawn(heed_runtime());
    auto until_drained = [this]() -> task<void> { co_await drained_; };
    co_await when_any(read(s), until_drained());
    s.cancel();
  };
  co_await scope::run(body);
}

// A runtime that stops gives open calls the time that `stop` was given.
task<void> server_session::heed_runtime() {
  co_await access::core(peer_.in()).runtime().stopping().wait();
  server_.begin_drain();
}

void call_server::state::begin_drain() noexcept {
  is_draining = true;
  for (server_session* session : sessions) session->begin_drain();
}

void server_session::note_load() noexcept {
  is_load_due_ = true;
  something_due_.set();
  something_due_.reset();
}

void server_session::begin_drain() noexcept {
  if (std::exchange(is_draining_, true)) return;
  is_drain_due_ = true;
  something_due_.set();
  something_due_.reset();
}

void server_session::check_drained() noexcept {
  if (is_draining_ && no_more_come_ && open_ == 0) drained_.set();
}

void server_session::stop_all() noexcept {
  is_heard_ = false;
  for (slot& s : slots_) {
    if (s.call) s.call->stop_.request_stop();
    s.note_credit();
  }
}

task<void> server_session::write() {
  answer_head head{};
  head.kind = answer_kind::hello;
  head.word = call_wire::hello_word;
  head.slot = static_cast<std::uint32_t>(slots_.size());
  head.size = server_.options.largest_request;
  co_await peer_.in().send_message(head, to(peer_.rank()), lane());
  for (;;) {
    while (!is_load_due_ && !is_drain_due_) co_await something_due_;
    head = answer_head{};
    if (std::exchange(is_drain_due_, false)) {
      head.kind = answer_kind::draining;
    } else {
      is_load_due_ = false;
      head.kind = answer_kind::load;
      head.word = server_.load;
    }
    co_await peer_.in().send_message(head, to(peer_.rank()), lane());
  }
}

// --- what the leader orders

task<void> server_session::read(scope& handlers) {
  const end_of_reading stops_all(*this);
  for (;;) {
    const message<order_head> got = co_await peer_.head<order_head>();
    if (got.head.kind == order_kind::request) {
      co_await take_request(handlers, got.head, got.info.bytes);
    } else if (got.head.kind == order_kind::control) {
      co_await take_control(got.head, got.info.bytes);
    } else {
      peer_.refuse(
          fmt::format("an order of kind {}", static_cast<unsigned>(got.head.kind)));
    }
  }
}

task<void> server_session::take_request(scope& handlers, order_head head,
                                        std::size_t size) {
  // The slots of these ends are free already. A leader that takes no ends is read no
  // further: otherwise they would pile up.
  while (ends_under_way_ >= slots_.size()) co_await end_sent_;
  if (head.slot >= slots_.size() || slots_[head.slot].is_taken)
    peer_.refuse(fmt::format("a request for slot {}, which is not free", head.slot));
  if (size > server_.options.largest_request)
    peer_.refuse(fmt::format("a request of {} bytes", size));
  bytes data(size);
  // It was given up on the way: the leader does not count it.
  if (size > 0 && !co_await peer_.payload(data)) co_return;
  if (is_draining_) {
    co_await give_back(head.slot, head.id);
    co_return;
  }
  slot& s = slots_[head.slot];
  MW_ASSERT(!s.is_taken && !s.call, "a request takes a free slot");
  s.is_taken = true;
  s.is_cancelled = false;
  s.is_sent_unclear = false;
  s.last = head.id;
  s.window = head.window;
  s.largest_reply = head.largest_reply;
  s.sent = s.credit = 0;
  ++open_;
  handlers.spawn(handle(head, std::move(data)));
}

// The request crossed our `draining`; the leader gives it to another worker.
task<void> server_session::give_back(std::uint32_t slot, std::uint64_t id) {
  slots_[slot].last = id;
  answer_head head{};
  head.kind = answer_kind::given_back;
  head.slot = slot;
  co_await peer_.in().send_message(head, to(peer_.rank()), lane());
}

task<void> server_session::take_control(order_head head, std::size_t size) {
  // A slot has at most one entry of each kind due at a time; `no_more` comes once
  // beside them.
  if (head.count > 2 * slots_.size() + 1 || size != head.count * sizeof(control_entry))
    peer_.refuse(fmt::format("{} entries of control in {} bytes", head.count, size));
  std::vector<control_entry> entries(head.count);
  bytes data(size);
  if (size > 0 && !co_await peer_.payload(data)) co_return;
  std::copy(data.begin(), data.end(), std::as_writable_bytes(std::span(entries)).begin());
  for (const control_entry& entry : entries) {
    if (!take(entry)) continue;
    answer_head never_come{};
    never_come.kind = answer_kind::done;
    never_come.slot = entry.slot;
    co_await peer_.in().send_message(never_come, to(peer_.rank()), lane());
  }
}

bool server_session::take(const control_entry& entry) {
  if (entry.kind == call_wire::control_kind::no_more) {
    if (!is_draining_ || no_more_come_)
      peer_.refuse(
          "the leader says that it sends no more requests, although this worker does not "
          "drain");
    no_more_come_ = true;
    check_drained();
    return false;
  }
  const bool is_credit = entry.kind == call_wire::control_kind::credit;
  if (!is_credit && entry.kind != call_wire::control_kind::cancel) {
    peer_.refuse(
        fmt::format("control of kind {}", static_cast<std::uint32_t>(entry.kind)));
  }
  if (entry.slot >= slots_.size())
    peer_.refuse(fmt::format("control of slot {}", entry.slot));
  slot& s = slots_[entry.slot];
  // It crossed the call's end, or the call was given up on its way here.
  if (!s.is_taken) return !is_credit && s.last != entry.word;
  if (!is_credit) {
    if (s.last != entry.word)
      peer_.refuse(fmt::format("a cancellation of slot {} for another call", entry.slot));
    s.is_cancelled = true;
    if (s.call) s.call->stop_.request_stop();
    s.note_credit();
    return false;
  }
  if (entry.word < s.credit || entry.word > s.sent)
    peer_.refuse("credit for replies that were not sent");
  s.credit = entry.word;
  s.note_credit();
  return false;
}

// --- one call

/// Holds the slot's call while its handler runs. At the end it triggers the stop token,
/// for what the handler has started elsewhere.
class server_session::running {
 public:
  running(slot& s, served_call& call) noexcept : slot_(s), call_(call) {
    MW_ASSERT(slot_.is_taken && !slot_.call, "a slot that is taken has one handler");
    slot_.call = &call;
    if (slot_.is_cancelled) call_.stop_.request_stop();
  }
  running(const running&) = delete;
  running& operator=(const running&) = delete;
  ~running() {
    MW_ASSERT(slot_.call == &call_, "a slot keeps its call until the handler ends");
    slot_.call = nullptr;
    call_.stop_.request_stop();
  }

  void begin() { deadline_.begin(*executor::current(), call_.deadline_, {}); }

 private:
  void deadline_passed(cause) noexcept {
    call_.is_late_ = true;
    call_.stop_.request_stop();
  }

  slot& slot_;
  served_call& call_;
  member_deadline<&running::deadline_passed> deadline_{*this};
};

task<server_session::handler_end> server_session::run_handler(order_head head,
                                                              bytes data) {
  MW_ASSERT(head.slot < slots_.size(), "a handler runs for a slot that exists");
  served_call call(*this, head.slot);
  call.id_ = head.id;
  call.earlier_tries_ = head.earlier_tries;
  call.data_ = std::move(data);
  if (head.time_left != call_wire::no_deadline) {
    const auto left = std::min<std::uint64_t>(
        head.time_left, static_cast<std::uint64_t>(duration::max().count()));
    call.deadline_ =
        later(executor::current()->now(), duration(static_cast<duration::rep>(left)));
  }
  running now(slots_[head.slot], call);
  now.begin();
  handler_end end;
  try {
    co_await stop_on(server_.handle(call), call.stop_token());
  } catch (const stopped& e) {
    // It may also be the handler's own.
    end.why = !call.stop_.stop_requested() ? cause::handler_failed
              : call.is_late_              ? cause::timed_out
                                           : cause::cancelled;
    end.text = e.what();
  } catch (const world_error& e) {
    end.why = call_wire::is_handlers_own(e.cause()) ? e.cause() : cause::handler_failed;
    end.text = end.why == cause::handler_failed ? e.what() : e.failure().detail;
  } catch (const std::exception& e) {
    end.why = cause::handler_failed;
    end.text = e.what();
  } catch (...) {
    end.why = cause::handler_failed;
    end.text = "it threw a type that is not derived from std::exception";
  }
  co_return end;
}

task<void> server_session::handle(order_head asked, bytes data) {
  const open_call counted_as_open(*this);
  handler_end end = co_await run_handler(asked, std::move(data));
  if (end.text.size() > call_wire::largest_text) end.text.resize(call_wire::largest_text);
  answer_head head{};
  head.kind = end.why == cause::none ? answer_kind::done : answer_kind::failed;
  head.why = end.why;
  head.slot = asked.slot;
  // Free the slot before the leader can know: its next request for the slot may be read
  // before this continues.
  MW_ASSERT(slots_[asked.slot].is_taken && !slots_[asked.slot].call,
            "a slot is freed once, after its handler");
  slots_[asked.slot].is_taken = false;
  const end_under_way counted(*this);
  const auto text = std::as_bytes(std::span(end.text));
  co_await peer_.in().send_message(head, text, to(peer_.rank()), lane());
}

/// Counts a reply from the begin of its sending. If it is given up, this side does not
/// know whether the leader has got it.
class server_session::counted_reply {
 public:
  counted_reply(slot& s, std::uint64_t cost) noexcept : slot_(s) { slot_.sent += cost; }
  counted_reply(const counted_reply&) = delete;
  counted_reply& operator=(const counted_reply&) = delete;
  ~counted_reply() {
    if (!is_sent_) slot_.is_sent_unclear = true;
  }
  void set_sent() noexcept { is_sent_ = true; }

 private:
  slot& slot_;
  bool is_sent_ = false;
};

task<void> server_session::tell_sent(std::uint32_t number) {
  slot& s = slots_[number];
  s.is_sent_unclear = false;
  counted_reply counted(s, 0);
  answer_head head{};
  head.kind = answer_kind::sent;
  head.slot = number;
  head.word = s.sent;
  co_await peer_.in().send_message(head, to(peer_.rank()), lane());
  counted.set_sent();
}

failure server_session::describe(enum cause why, std::uint32_t number,
                                 std::string detail) const {
  failure f =
      access::core(peer_.in())
          .describe_failure(why, peer_.rank(), operation_kind::call, std::move(detail));
  // This is an error of this call alone, which no `keep` takes for its world's.
  f.world_instance = 0;
  if (const auto id = slots_[number].last) f.call = fmt::format("{:x}", *id);
  return f;
}

task<void> server_session::reply(std::uint32_t number, gather_list data) {
  MW_ASSERT(number < slots_.size(), "a reply is for a slot that exists");
  slot& s = slots_[number];
  MW_ASSERT(s.credit <= s.sent, "no reply is read before it was sent");
  const std::size_t size = data.total_bytes();
  if (size > s.largest_reply) {
    throw world_error(
        describe(cause::invalid_argument, number,
                 fmt::format("a reply of {} bytes is too large: the leader takes {}",
                             size, s.largest_reply)));
  }
  const std::uint64_t cost = size + call_wire::reply_cost;
  // A shielded reply outlives the reader of credit. A leader that has cancelled the
  // call gives none, and drops what comes; a world that is over fails the send.
  while (!s.is_cancelled && !peer_.is_over() &&
         call_wire::must_wait(s.sent - s.credit, cost, s.window)) {
    if (!is_heard_)
      throw world_error(
          describe(cause::cancelled, number, "the call's world is no longer served"));
    if (s.is_sent_unclear) {
      co_await tell_sent(number);
    } else {
      co_await s.credited;
    }
  }
  counted_reply counted(s, cost);
  answer_head head{};
  head.kind = answer_kind::reply;
  head.slot = number;
  co_await peer_.in().send_message(head, std::move(data), to(peer_.rank()), lane());
  counted.set_sent();
}

}  // namespace manyworlds::inline v0
