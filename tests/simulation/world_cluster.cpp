#include "simulation/world_cluster.hpp"

#include <fmt/format.h>

#include "link/chunk_slab.hpp"
#include "store/tcp_store_server.hpp"
#include "world/backend_factory.hpp"
#include "world/runtime_core.hpp"
#include "world/world_core.hpp"

namespace manyworlds_tests {

namespace {
constexpr std::uint16_t store_port = 29500;

/// Makes backends that offer what is larger than a chunk. Otherwise runs of chunks are
/// nearly always free, and what is offered and copied unasked would hardly be met.
class offering_backends final : public mw::backend_factory {
 public:
  std::unique_ptr<mw::backend> make_backend(mw::backend_parts parts) override {
    mw::host_backend_options options = parts.host_options();
    options.unasked_in_memory = mw::shm::chunk_size;
    return std::make_unique<mw::host_backend>(parts.home(), parts.listener(), options,
                                              parts.options().rank,
                                              parts.take_connections());
  }
};
offering_backends some_offer;

}  // namespace

void remembered_log::write(mw::log_level, std::string_view line) noexcept {
  const double now = static_cast<double>(sim_.elapsed().count()) / 1e6;
  lines_.push_back(
      fmt::format("{:12.6f} ms {:>6} {}: {}", now, sim_.steps(), who_, line));
  if (lines_.size() > most_) lines_.pop_front();
}

// --- one process -----------------------------------------------------------------------

member_process::member_process(cluster& owner, mw::simulated_process& process,
                               std::size_t index)
    : rendezvous(&owner.shared_store),
      process_(process),
      index_(index),
      log_(owner.sim, process.name(), owner.lines_, owner.lines_kept) {
  mw::runtime_options options;
  options.environment = &process;
  options.log = &log_;
  options.log_from = mw::log_level::debug;
  // By seed, and in half of the processes.
  if ((owner.seed + index) % 2 == 0) options.backends = &some_offer;
  runtime_ = std::make_unique<mw::runtime>(options);
}

member_process::~member_process() = default;

bool member_process::has_ended() const {
  return std::all_of(tasks_.begin(), tasks_.end(),
                     [](const auto& t) { return t.is_ready(); });
}

void member_process::check() {
  for (auto& t : tasks_) {
    if (t.is_ready()) t.get();
  }
}

void member_process::use_store_of(const member_process& host) {
  mw::tcp_store_options options;
  options.seed = index_;
  client_ = std::make_unique<mw::tcp_store>(
      *runtime_, host.process().address(store_port).text(), options);
  rendezvous = client_.get();
}

void member_process::end() {
  tasks_.clear();
  client_ = nullptr;
  runtime_ = nullptr;
}

// --- all of them -----------------------------------------------------------------------

cluster::cluster(std::uint64_t by_seed, mw::simulation_options options)
    : seed(by_seed), sim(by_seed, options) {
  story.at_first_complaint([this] { return dumps(); });
  sim.trace_to([this](const mw::simulated_event& e) {
    if (e.what == "turn") return;
    if (e.what == "pair") ++shared_links_;
    events_.push_back(e);
    if (events_.size() > lines_kept) events_.pop_front();
  });
}

cluster::~cluster() { close(); }

member_process& cluster::add(std::string name) {
  mw::simulated_process& p = sim.add_process(name);
  faults.processes.push_back({std::move(name), {}, false, sim.now()});
  members_.push_back(std::make_unique<member_process>(*this, p, members_.size()));
  return *members_.back();
}

member_process& cluster::add(std::string name, member_process& beside) {
  mw::simulated_process& p = sim.add_process(name, beside.process());
  faults.processes.push_back({std::move(name), {}, false, sim.now()});
  members_.push_back(std::make_unique<member_process>(*this, p, members_.size()));
  return *members_.back();
}

void cluster::look() {
  story.check_waiting(sim.now());
  memory.look();
  for (const auto& m : members_) {
    for (const auto& [name, w] : m->worlds) {
      if (!m->is_alive() || w->state() != mw::world_state::up) continue;
      const world_entry* entry = story.find(m->index(), mw::access::core(*w).instance());
      for (mw::rank_t r = 0; entry && r < w->size(); ++r) {
        if (!w->is_suspect(r)) continue;
        story.check_suspicion(m->index(), name,
                              entry->members[static_cast<std::size_t>(r)], sim.now());
      }
    }
  }
}

// --- faults ----------------------------------------------------------------------------

void cluster::kill(member_process& m) {
  if (!m.is_alive()) return;
  faults.begin({fault_log::killed, m.index(), {}, {}, sim.now(), {}});
  faults.processes[m.index()].killed = sim.now();
  sim.kill(m.process());
}

void cluster::stop(member_process& m, mw::duration span) {
  process_life& life = faults.processes[m.index()];
  if (!m.is_alive() || life.stopped) return;
  const std::size_t f = faults.begin({"stopped", m.index(), {}, {}, sim.now(), {}});
  life.stopped = true;
  sim.stop(m.process());
  sim.after(span, [this, &m, f] {
    faults.end(f, sim.now());
    faults.processes[m.index()].stopped = false;
    faults.processes[m.index()].resumed = sim.now();
    sim.resume(m.process());
  });
}

void cluster::partition(member_process& a, member_process& b, mw::duration span) {
  const std::size_t f =
      faults.begin({fault_log::partitioned, a.index(), b.index(), {}, sim.now(), {}});
  sim.partition(a.process(), b.process());
  sim.after(span, [this, &a, &b, f] {
    faults.end(f, sim.now());
    sim.heal(a.process(), b.process());
  });
}

void cluster::lose_link(member_process& a, member_process& b, mw::duration span) {
  const std::size_t f =
      faults.begin({"lost link", a.index(), b.index(), {}, sim.now(), {}});
  sim.lose_link(a.process(), b.process());
  sim.after(span, [this, &a, &b, f] {
    faults.end(f, sim.now());
    sim.heal(a.process(), b.process());
  });
}

void cluster::cut(member_process& a, member_process& b) {
  faults.begin({"cut", a.index(), b.index(), {}, sim.now(), sim.now()});
  sim.cut(a.process(), b.process());
}

void cluster::slow_down(member_process& m, mw::duration span) {
  constexpr std::size_t bytes_per_millisecond = 200;
  const std::size_t f = faults.begin({"slow", m.index(), {}, {}, sim.now(), {}});
  sim.slow_reader(m.process(), bytes_per_millisecond);
  sim.after(span, [this, &m, f] {
    faults.end(f, sim.now());
    sim.slow_reader(m.process(), 0);
  });
}

void cluster::fail_world(const std::string& name) {
  for (const auto& m : members_) {
    const auto found = m->worlds.find(name);
    if (!m->is_alive() || found == m->worlds.end()) continue;
    faults.begin({"failed by its user", {}, {}, name, sim.now(), sim.now()});
    found->second->fail("the test wants it so");
    return;
  }
}

void cluster::freeze(mw::duration span) {
  std::vector<std::size_t> frozen;
  for (const auto& m : members_) {
    process_life& life = faults.processes[m->index()];
    if (!m->is_alive() || life.stopped) continue;
    life.stopped = true;
    sim.stop(m->process());
    frozen.push_back(m->index());
  }
  sim.after(span, [this, frozen] {
    for (const std::size_t i : frozen) {
      faults.processes[i].stopped = false;
      faults.processes[i].resumed = sim.now();
      sim.resume(at(i).process());
    }
  });
}

void cluster::host_store(member_process& m) {
  auto server = std::make_shared<mw::tcp_store_server>(
      mw::access::core(m.runtime()).service(), m.process().address(store_port));
  auto serve = [](std::shared_ptr<mw::tcp_store_server> s) -> mw::task<void> {
    co_await s->serve();
  };
  (void)m.runtime().start_service(serve(std::move(server)));
}

// --- the end ---------------------------------------------------------------------------

void cluster::close() {
  if (std::exchange(closed_, true)) return;
  faults.closing = sim.now();
  if (is_runaway()) story.complain("law 9: it never comes to rest");
  const std::uint64_t patience = sim.steps() + most_steps;
  for (const auto& m : members_) {
    sim.slow_reader(m->process(), 0);
    sim.resume(m->process());
    sim.release(m->process());
    for (const auto& other : members_) sim.heal(m->process(), other->process());
  }
  for (const auto& m : members_) m->runtime().stop();
  const auto all_ended = [this] {
    return std::all_of(members_.begin(), members_.end(),
                       [](const auto& m) { return m->has_ended(); });
  };
  const auto enough = [&] { return sim.steps() > patience || all_ended(); };
  (void)sim.run_until(enough, 30s);
  if (!all_ended()) {
    story.complain("law 9: tasks do not end when their runtimes stop");
    // Nothing could be destroyed without being waited for.
    for (auto& m : members_) (void)m.release();
    members_.clear();
    return;
  }
  (void)sim.run_until([&] { return sim.steps() > patience; }, 3s);
  for (const auto& m : members_) m->end();
  for (const auto& m : members_) {
    if (const std::size_t open = m->process().open_sockets(); open != 0) {
      story.complain(
          fmt::format("law 6: {} ended with {} sockets open", m->name(), open));
    }
  }
  const auto alive = std::count_if(cores_.begin(), cores_.end(),
                                   [](const auto& core) { return !core.expired(); });
  if (alive != 0)
    story.complain(fmt::format("law 6: {} worlds outlive their runtimes", alive));
  memory.look(mw::duration::zero());
  story.check_everything();
}

std::string cluster::last_lines() const {
  std::string all = "when it was first noticed:\n" + story.scene();
  all += "what the runtimes logged last:\n";
  for (const std::string& line : lines_) all += line + "\n";
  all += "what happened last:\n";
  for (const mw::simulated_event& e : events_) all += e.text() + "\n";
  all += "faults:\n";
  for (const fault& f : faults.all()) {
    all += fmt::format(
        "  {:.3f} ms: {} {} {} {}\n",
        static_cast<double>((f.begin - (sim.now() - sim.elapsed())).count()) / 1e6,
        f.what, f.process ? faults.processes[*f.process].name : "",
        f.other ? faults.processes[*f.other].name : "", f.world);
  }
  return all;
}

std::string cluster::dumps() {
  std::string all = story.waiting_text() + sim.describe();
  for (const auto& m : members_) {
    if (m->has_runtime()) all += m->name() + ":\n" + m->runtime().dump() + "\n";
  }
  return all;
}

}  // namespace manyworlds_tests
