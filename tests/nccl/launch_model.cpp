#include "launch_model.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace manyworlds::testing {

using namespace std::chrono_literals;

namespace {

/// For each operation of each world: more than any run needs that comes to an end.
constexpr std::uint64_t most_steps = 6'000;
constexpr int launch_us = 5;
constexpr int message_us = 300;

}  // namespace

launch_model::launch_model(const model_options& o) : options_(o), random_(o.seed) {
  for (int i = 0; i < o.gpus; ++i) {
    auto& fresh = *gpus_.emplace_back(std::make_unique<gpu>());
    fresh.order = std::make_shared<nccl::launch_order>();
    fresh.connections.resize(static_cast<std::size_t>(o.connections));
  }
  for (int i = 0; i < o.worlds; ++i) make_world(i);
}

duration launch_model::delay(int most_us) {
  return std::chrono::nanoseconds(1 + pick(static_cast<std::uint64_t>(most_us) * 1000));
}

void launch_model::at(time_point when, action what) {
  future_.emplace(std::pair(when, ++steps_), std::move(what));
}

void launch_model::make_world(int number) {
  world& w = *worlds_.emplace_back(std::make_unique<world>());
  w.model = this;
  w.number = number;
  std::vector<int> on;
  for (int i = 0; i < options_.gpus; ++i) on.push_back(i);
  std::shuffle(on.begin(), on.end(), random_);
  const auto size = static_cast<rank_t>(2 + pick(on.size() - 1));
  w.leader = std::make_unique<nccl::launch_leader>(size, w);
  for (rank_t r = 0; r < size; ++r) {
    auto& m = *w.members.emplace_back(std::make_unique<member>());
    m.of = &w;
    m.rank = r;
    m.on = gpus_[static_cast<std::size_t>(on[static_cast<std::size_t>(r)])].get();
  }
  for (int i = 0; i < options_.operations; ++i) {
    plan p;
    if (pick(3) == 0) {
      p.what = pair;
      p.sender = static_cast<rank_t>(pick(static_cast<std::uint64_t>(size)));
      p.receiver = static_cast<rank_t>((p.sender + 1) % size);
    }
    w.plans.push_back(p);
  }
  // Half of them come while the others are busy.
  at(now_ + (number % 2 == 0 ? delay(100) : delay(8000)), [this, &w] { begin(w); });
  if (options_.breaks && number % 3 == 1) {
    at(now_ + delay(12'000), [this, &w] { break_world(w); });
  }
}

void launch_model::begin(world& w) {
  for (const auto& each : w.members) {
    member& m = *each;
    if (m.is_broken) continue;
    m.connection = m.on->streams++ % m.on->connections.size();
    after(500, [this, &m] {
      if (m.is_broken) return;
      m.seat.emplace(m.on->order, m.on, [this, &m] { ring(m); });
      m.seat->set_world(static_cast<std::uint64_t>(m.of->number) + 1);
      ring(m);
    });
    if (options_.stops && pick(4) == 0) {
      after(8000, [&m, until = now_ + delay(200'000)] { m.stopped_until = until; });
    }
  }
}

void launch_model::ring(member& m) {
  if (std::exchange(m.is_wakeup_pending, true)) return;
  after(20, [this, &m] {
    m.is_wakeup_pending = false;
    look(m);
  });
}

// What a member looks at when it was woken, and after whatever it was told.
void launch_model::look(member& m) {
  if (m.is_broken || !m.seat) return;
  if (now_ < m.stopped_until) return at(m.stopped_until, [this, &m] { look(m); });
  if (options_.has_order && m.seat->is_crowded() &&
      !std::exchange(m.has_said_crowded, true)) {
    send(m, 0, nccl::crowded_message{});
  }
  if (m.uses_places && !m.is_orderly && m.placeless == 0) {
    m.is_orderly = true;
    m.seat->set_orderly();
  }
  if (!m.has_said_made && (!options_.has_order || m.seat->are_others_orderly())) {
    m.has_said_made = true;
    send(m, 0, nccl::made_message{});
  }
  answer(m);
  take_turns(m);
}

void launch_model::send(member& from, rank_t to, nccl::order_message message) {
  world& w = *from.of;
  member& there = *w.members[static_cast<std::size_t>(to)];
  time_point& last = from.channel[to];
  last = std::max(last, now_ + delay(to == from.rank ? 1 : message_us));
  const auto arrive = [this, &there, rank = from.rank, message] {
    hear(there, rank, message);
  };
  at(last, arrive);
  last += 1ns;
}

void launch_model::hear(member& m, rank_t from, const nccl::order_message& message) {
  if (m.is_broken) return;
  if (now_ < m.stopped_until) {
    // In the order in which they came.
    return at(m.stopped_until, [this, &m, from, message] { hear(m, from, message); });
  }
  lead(*m.of, from, message);
  follow(m, message);
  look(m);
}

void launch_model::world::tell(rank_t whom, const nccl::order_message& m) {
  if (std::holds_alternative<nccl::retract_message>(m)) ++model->retractions_;
  model->send(*members.front(), whom, m);
  model->tick(*this);
}

void launch_model::world::accuse(rank_t, enum cause, std::string detail) {
  throw std::logic_error(detail);
}

void launch_model::tick(world& w) {
  const auto due = w.leader->due();
  if (!due || std::exchange(w.is_ticking, true)) return;
  at(std::max(*due, now_), [this, &w] {
    w.is_ticking = false;
    if (w.is_gone) return;
    w.leader->tick(now_);
    tick(w);
  });
}

void launch_model::lead(world& w, rank_t from, const nccl::order_message& message) {
  if (w.is_gone) return;
  if (const auto* m = std::get_if<nccl::enter_message>(&message)) {
    w.leader->enter(from, m->number, m->terms, now_);
  } else if (const auto* m = std::get_if<nccl::pair_request>(&message)) {
    w.leader->place_pair(from, *m, now_);
  } else if (const auto* m = std::get_if<nccl::promise_message>(&message)) {
    w.leader->hear_promise(from, *m, now_);
  } else if (std::holds_alternative<nccl::made_message>(message)) {
    w.leader->hear_made(from, now_);
  } else if (std::holds_alternative<nccl::crowded_message>(message)) {
    w.leader->use_places();
  }
  tick(w);
}

void launch_model::follow(member& m, const nccl::order_message& message) {
  const int number = m.of->number;
  if (std::holds_alternative<nccl::places_message>(message)) {
    m.uses_places = true;
  } else if (const auto* c = std::get_if<nccl::connect_message>(&message)) {
    launch(m, {number, connecting, 0}, c->place);
  } else if (const auto* l = std::get_if<nccl::collective_launch>(&message)) {
    launch(m, {number, collective, l->number}, l->place);
  } else if (const auto* p = std::get_if<nccl::pair_launch>(&message)) {
    launch(m, {number, pair, p->token}, p->place);
  } else if (const auto* p = std::get_if<nccl::propose_message>(&message)) {
    m.unanswered.push_back(p->number);
  } else if (const auto* r = std::get_if<nccl::retract_message>(&message)) {
    std::erase(m.unanswered, r->number);
    m.seat->forget(r->number);
  }
}

void launch_model::answer(member& m) {
  // The first is the connecting itself.
  const bool is_first =
      operations_.find({m.of->number, connecting, 0}) == operations_.end();
  if (!is_first && (!m.is_connected || m.placeless > 0)) return;
  while (!m.unanswered.empty()) {
    const std::uint64_t each = m.unanswered.front();
    m.unanswered.pop_front();
    send(m, 0, nccl::promise_message{each, m.seat->promise(each)});
  }
}

void launch_model::launch(member& m, const operation_id& what, nccl::launch_place place) {
  operation& op = operations_[what];
  op.members.insert(m.rank);
  if (place.is_none()) {
    placeless_.insert({what, m.rank});
    ++m.placeless;
    return hand_over(m, what, nullptr);
  }
  const auto kind = std::get<1>(what) == connecting ? nccl::launch_kind::connecting
                                                    : nccl::launch_kind::operation;
  if (m.seat->decide(place.number, place.time, kind) !=
      nccl::order_seat::ruling::accepted) {
    throw std::logic_error("a decision that is refused");
  }
  m.placed[place.number] = what;
}

void launch_model::take_turns(member& m) {
  while (const auto number = m.seat->next_turn()) {
    const operation_id what = m.placed.at(*number);
    m.placed.erase(*number);
    hand_over(m, what, std::make_shared<nccl::launch_turn>(m.seat->take(*number)));
  }
}

void launch_model::hand_over(member& m, const operation_id& what,
                             std::shared_ptr<nccl::launch_turn> turn) {
  if (turn) m.on->launched.push_back(what);
  // One thread launches for the GPU.
  time_point& free = m.on->launcher_is_free;
  free = std::max(free, now_) + delay(launch_us);
  at(free, [this, &m, what, turn] {
    auto& connection = m.on->connections[m.connection];
    connection.push_back({&m, m.pushed++, what});
    connection.push_back({&m, m.pushed++, std::nullopt});
    if (turn) turn->give_up();
    advance();
  });
}

void launch_model::advance() {
  bool any = true;
  while (any) {
    any = false;
    for (const auto& each : gpus_) {
      for (auto& connection : each->connections) any |= advance(connection);
    }
  }
}

// The head of a connection starts when its stream has got there, and then the next is the
// head.
bool launch_model::advance(std::deque<command>& connection) {
  if (connection.empty()) return false;
  const command head = connection.front();
  if (!head.of->is_broken && head.index != head.of->done) return false;
  connection.pop_front();
  if (head.of->is_broken) return true;
  if (!head.kernel) {
    ++head.of->done;
    return true;
  }
  operations_[*head.kernel].running.insert(head.of->rank);
  end_kernels(*head.kernel);
  return true;
}

void launch_model::end_kernels(const operation_id& what) {
  const world& w = *worlds_[static_cast<std::size_t>(std::get<0>(what))];
  const operation& op = operations_[what];
  const std::size_t wanted = std::get<1>(what) == pair ? 2 : w.members.size();
  if (op.running.size() < wanted) return;
  for (const rank_t rank : op.running) {
    member& m = *w.members[static_cast<std::size_t>(rank)];
    after(50, [this, &m, what] {
      if (m.is_broken) return;
      ++m.done;
      note_end(m, what);
      advance();
    });
  }
}

void launch_model::note_end(member& m, const operation_id& what) {
  operation& op = operations_[what];
  op.ended.insert(m.rank);
  if (placeless_.erase({what, m.rank}) > 0) --m.placeless;
  if (op.ended.size() == op.running.size()) {
    ++ended_;
    ++m.of->ended;
  }
  if (std::get<1>(what) == connecting) {
    m.is_connected = true;
    if (m.rank == 0) {
      m.of->leader->open(now_);
      tick(*m.of);
    }
    // Many are begun before the first has ended.
    for (int i = 0; i < 4; ++i) enter_next(m);
  } else {
    enter_next(m);
  }
  ring(m);
}

void launch_model::enter_next(member& m) {
  world& w = *m.of;
  if (m.entered == w.plans.size()) return;
  const std::uint64_t number = ++m.entered;
  const plan& p = w.plans[number - 1];
  m.last_entry = std::max(m.last_entry, now_) + delay(100);
  at(m.last_entry, [this, &m, number, p] {
    if (m.is_broken) return;
    if (p.what == pair) {
      if (p.receiver == m.rank) {
        nccl::pair_request request;
        request.sender = p.sender;
        request.token = number;
        send(m, 0, request);
      }
      // Members that are no side of the operation go on at once.
      if (p.receiver != m.rank && p.sender != m.rank) enter_next(m);
      return;
    }
    nccl::enter_message enter;
    // Collectives are numbered by themselves.
    enter.number = static_cast<std::uint64_t>(std::count_if(
        m.of->plans.begin(), m.of->plans.begin() + static_cast<std::ptrdiff_t>(number),
        [](const plan& each) { return each.what == collective; }));
    enter.terms.kind = operation_kind::all_reduce;
    send(m, 0, enter);
  });
}

// Each member hears of it at another time, and its kernels are cut short then.
void launch_model::break_world(world& w) {
  w.is_gone = true;
  w.leader->stop();
  for (const auto& each : w.members) {
    after(3000, [this, m = each.get()] { leave(*m); });
  }
}

void launch_model::leave(member& m) {
  m.is_broken = true;
  m.seat.reset();
  advance();
}

// The connecting is one more operation.
bool launch_model::is_done(const world& w) {
  return w.ended == w.plans.size() + 1 &&
         std::all_of(w.members.begin(), w.members.end(),
                     [&](const auto& m) { return m->entered == w.plans.size(); });
}

void launch_model::run() {
  const auto most = most_steps * static_cast<std::uint64_t>(options_.worlds) *
                    static_cast<std::uint64_t>(options_.operations + 1);
  while (!future_.empty() && steps_ < most) {
    auto next = future_.extract(future_.begin());
    now_ = next.key().first;
    next.mapped()();
    // A world that has done all it is to do goes.
    for (const auto& w : worlds_) {
      if (!w->is_gone && is_done(*w)) break_world(*w);
    }
  }
}

std::vector<std::string> launch_model::unfinished() const {
  std::vector<std::string> all;
  for (const auto& w : worlds_) {
    if (w->is_gone) continue;
    all.push_back("world " + std::to_string(w->number));
  }
  return all;
}

int launch_model::opposite_orders() const {
  int found = 0;
  for (const auto& a : gpus_) {
    std::map<operation_id, std::size_t> places;
    for (std::size_t i = 0; i < a->launched.size(); ++i) places[a->launched[i]] = i;
    for (const auto& b : gpus_) {
      std::size_t before = 0;
      for (const operation_id& each : b->launched) {
        const auto at = places.find(each);
        if (at == places.end()) continue;
        if (at->second < before) ++found;
        before = std::max(before, at->second);
      }
    }
  }
  return found;
}

}  // namespace manyworlds::testing
