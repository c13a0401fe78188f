#include "spmd/node_relay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <span>
#include <utility>

#include "manyworlds/coro/when_any.hpp"
#include "spmd/worker_link.hpp"

namespace manyworlds::inline v0::detail {

using node_wire::command_for;
using node_wire::command_target;
using node_wire::order_head;
using node_wire::order_kind;
using node_wire::word_kind;
using node_wire::word_of;

node_relay::attachment::attachment(node_relay* to, worker_link& link) noexcept
    : to_(to), link_(link) {
  if (to_ != nullptr)
    to_->links_[static_cast<std::size_t>(link.id() - to_->first_)] = &link;
}

node_relay::attachment::~attachment() {
  if (to_ != nullptr)
    to_->links_[static_cast<std::size_t>(link_.id() - to_->first_)] = nullptr;
}

worker_link* node_relay::find(int worker) const noexcept {
  const std::int64_t at = std::int64_t{worker} - first_;
  if (at < 0 || std::cmp_greater_equal(at, links_.size())) return nullptr;
  return links_[static_cast<std::size_t>(at)];
}

void node_relay::fail(const worker_link& link, std::string why) {
  order_head head{};
  head.kind = order_kind::fail;
  head.worker = link.id();
  head.incarnation = link.incarnation();
  why.resize(std::min(why.size(), node_wire::longest_text));
  orders_.push(head, std::move(why));
}

bool node_relay::is_heard(const world_name& name, bool is_suspect) const noexcept {
  // Another session of this runtime has worlds of the same names.
  return agent_ != nullptr && name == name_ && agent_->is_suspect(1) == is_suspect;
}

task<void> node_relay::serve(world& w) {
  const struct serving {
    const world*& agent;
    serving(const world*& at, const world& now) noexcept : agent(at) { agent = &now; }
    ~serving() { agent = nullptr; }
  } present(agent_, w);
  co_await when_any(read(w), write(w, true), write(w, false));
}

// --- what goes out ------------------------------------------------------------

/// Returns the link with the earliest command that may be sent, or null.
worker_link* node_relay::earliest(bool urgent) const noexcept {
  worker_link* found = nullptr;
  for (worker_link* const each : links_) {
    if (each == nullptr || !each->may_relay(urgent)) continue;
    if (found == nullptr || each->next(urgent).order < found->next(urgent).order)
      found = each;
  }
  return found;
}

task<void> node_relay::write(world& w, bool urgent) {
  for (;;) {
    worker_link* const first = earliest(urgent);
    if (first == nullptr) {
      wake_.reset();
      co_await wake_;
      continue;
    }
    co_await send(w, *first, urgent);
  }
}

/// Law 4: each part is being read until the one send has ended.
task<void> node_relay::send(world& w, worker_link& first, bool urgent) {
  worker_link::outgoing what = first.take(urgent);
  const sent_block block = what.whole();
  std::vector<command_target> targets;
  std::deque<being_read> reading;
  const auto add = [&](worker_link& link, worker_link::outgoing& own) {
    command_target target{};
    target.worker = link.id();
    target.incarnation = link.incarnation();
    target.flags = own.head.flags;
    if (!urgent) {
      target.behind = link.told();
      call_part* const part = link.note_sent(own, block);
      if (part != nullptr) reading.emplace_back(*own.call, *part);
    }
    targets.push_back(target);
  };
  add(first, what);
  for (worker_link* const each : links_) {
    if (each == nullptr || !each->may_relay(urgent) || !each->next(urgent).is_as(what))
      continue;
    worker_link::outgoing own = each->take(urgent);
    add(*each, own);
  }
  command_for head{};
  head.command = what.head;
  head.targets = static_cast<std::uint32_t>(targets.size());
  std::vector<const_buffer_view> views{std::as_bytes(std::span(targets))};
  views.insert(views.end(), block.views().begin(), block.views().end());
  co_await w.send_message(head, views, to{1},
                          urgent ? node_wire::urgent : node_wire::commands);
}

// --- what comes back ------------------------------------------------------------

/// Says what is wrong with a word; empty if nothing is. It is asked before any memory is
/// taken for it (law 11).
std::string node_relay::objection_to(const word_of& head, std::size_t bytes) const {
  const std::int64_t at = std::int64_t{head.worker} - first_;
  if (at < 0 || std::cmp_greater_equal(at, links_.size()))
    return fmt::format("a word of worker {}, which is not of this node", head.worker);
  if (head.kind == word_kind::reply && !reply_fits(head.reply, bytes))
    return "a reply that contradicts itself";
  if (head.kind < word_kind::joined || head.kind > word_kind::over ||
      (head.kind == word_kind::joined && bytes != 0))
    return "a word that this version does not know";
  if (head.kind == word_kind::over && bytes > node_wire::longest_text)
    return fmt::format("a text of {} bytes", bytes);
  return {};
}

/// What comes late, of an incarnation that is lost, is dropped.
task<void> node_relay::read(world& w) {
  for (;;) {
    const auto told = co_await w.recv_message<word_of>(from{1}, node_wire::commands);
    if (std::string wrong = objection_to(told.head, told.info.bytes); !wrong.empty()) {
      w.fail(std::move(wrong));
      continue;
    }
    received_block block(told.info.bytes);
    if (told.info.has_payload)
      co_await w.recv(block.view(), from{1}, node_wire::commands);
    worker_link* const link = find(told.head.worker);
    if (link == nullptr || link->incarnation() != told.head.incarnation) continue;
    link->take_word(told.head, std::move(block));
  }
}

}  // namespace manyworlds::inline v0::detail
