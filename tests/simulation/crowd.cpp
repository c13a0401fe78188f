#include "simulation/crowd.hpp"

#include "manyworlds/world/outcome.hpp"

namespace manyworlds_tests {

namespace {

/// More sockets than a thousand peers need.
constexpr std::size_t descriptors = 1 << 16;

}  // namespace

crowd::crowd(std::size_t processes) : sim(1, network()), efforts_(processes) {
  for (std::size_t i = 0; i < processes; ++i) {
    resident r;
    r.process = &sim.add_process("p" + std::to_string(i));
    r.process->limit_descriptors(descriptors);
    by_name_[r.process->name()] = i;
    mw::runtime_options options;
    options.environment = r.process;
    options.log = this;
    // A turn is for something that has come.
    options.spin = mw::duration::zero();
    r.runtime = std::make_unique<mw::runtime>(options);
    residents_.push_back(std::move(r));
  }
  sim.trace_to([this](const mw::simulated_event& e) { count(e); });
}

crowd::~crowd() {
  for (const resident& r : residents_) {
    sim.release(*r.process);
    r.runtime->stop();
  }
  const auto has_ended = [](const resident& r) {
    return std::all_of(r.tasks.begin(), r.tasks.end(),
                       [](const auto& t) { return t.is_ready(); });
  };
  std::size_t first = 0;
  (void)sim.run_until(
      [&] {
        while (first < residents_.size() && has_ended(residents_[first])) ++first;
        return first == residents_.size();
      },
      30s);
  for (resident& r : residents_) {
    r.tasks.clear();
    r.runtime = nullptr;
  }
}

void crowd::form(std::string name, std::vector<std::size_t> members) {
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    resident& r = residents_[members[rank]];
    mw::world_options options;
    options.name = mw::world_name(name);
    options.rank = static_cast<mw::rank_t>(rank);
    options.size = static_cast<mw::rank_t>(members.size());
    r.tasks.push_back(r.runtime->start(stay_in(*r.runtime, options)));
  }
}

mw::task<void> crowd::stay_in(mw::runtime& rt, mw::world_options options) {
  mw::world w(rt, store_, options);
  if (!co_await mw::outcome(w)) co_return;
  ++up_;
  const mw::failure why = co_await w.broken();
  --up_;
  if (why.cause == mw::cause::peer_died) ++bereft_;
}

void crowd::kill(std::size_t process) { sim.kill(*residents_[process].process); }

void crowd::count(const mw::simulated_event& e) {
  const auto found = by_name_.find(std::string(e.process));
  if (found == by_name_.end()) return;
  effort& spent = efforts_[found->second];
  if (e.what == "turn") ++spent.turns;
  if (e.what == "dial" || e.what == "connection") ++spent.connections;
  if (e.what != "data arrives" || e.amount == uncounted_) return;
  ++spent.messages;
  spent.bytes += e.amount;
}

effort crowd::greatest() const {
  effort all;
  for (const effort& e : efforts_) {
    all.messages = std::max(all.messages, e.messages);
    all.bytes = std::max(all.bytes, e.bytes);
    all.connections = std::max(all.connections, e.connections);
    all.turns = std::max(all.turns, e.turns);
  }
  return all;
}

}  // namespace manyworlds_tests
