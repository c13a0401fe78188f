// Manual rendezvous: each node is given its place, and node 0 serves the store. The keys
// are those of torchrun's backend "static", so that any node may be torchrun's.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "launch/meeting_store.hpp"
#include "launch/rendezvous_backends.hpp"
#include "launch/torchrun_keys.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// How long node 0 waits for a predecessor to leave the endpoint.
constexpr duration until_endpoint_is_free = std::chrono::seconds(2);
constexpr duration role_wait = std::chrono::hours(1);
/// How long node 0 serves the store after the last has come to the end: torchrun's agents
/// then still look at the key that says so.
constexpr duration last_look = std::chrono::seconds(1);

/// What the seat and the backend of one node share.
struct manual_run {
  manual_run(runtime& home, const rendezvous_options& options)
      : rt(home), store(home, options), keys(options.run_id), run_id(options.run_id) {}

  /// Waits for as long as it takes until the node of that place has said what it is.
  [[nodiscard]] task<round_node> node_at(int place) {
    for (;;) {
      try {
        const std::string said = co_await store.client().get(keys.role(place), role_wait);
        co_return node_of_torchrun_role(said, place);
      } catch (const store_error& e) {
        if (e.kind() != store_error_kind::timed_out) throw;
      } catch (const std::invalid_argument& e) {
        refuse(e.what());
      }
    }
  }
  [[noreturn]] void refuse(std::string_view why) const {
    throw rendezvous_error(
        rendezvous_error_kind::refused,
        fmt::format("rendezvous of run {} at {}: {}", run_id, store.endpoint(), why));
  }

  runtime& rt;
  meeting_store store;
  const torchrun_keys keys;
  const std::string run_id;
  bool has_outsiders = false;
};

bool is_torchruns(const round_node& node) { return node.id.starts_with(torchrun_id); }

/// The seat of the first node that is an agent of ours. It tells our agents by their
/// worlds, and torchrun's by keys.
class manual_seat final : public lasting_seat {
 public:
  manual_seat(manual_run& run, int place, std::size_t nodes,
              std::unique_ptr<served_store> served)
      : run_(run),
        place_(place),
        nodes_(static_cast<int>(nodes)),
        served_(std::move(served)) {}

  task<bool> publish(std::string round_json) override {
    const round decided = round::from_json(round_json);
    if (place_ > 0) {
      co_await compare(decided);
    } else {
      std::vector<store_entry> told;
      for (const round_node& node : decided.nodes)
        told.push_back({run_.keys.ranks(node.place), torchrun_ranks(decided, node)});
      co_await run_.store.client().multi_set(std::move(told));
    }
    co_return true;
  }

  task<round_node> next_outsider() override {
    while (next_ < nodes_) {
      round_node node = co_await run_.node_at(next_);
      ++next_;
      if (!is_torchruns(node)) continue;
      run_.has_outsiders = true;
      co_return node;
    }
    co_return co_await lasting_seat::next_outsider();
  }

 private:
  /// torchrun's node 0 has counted the workers as we have, or nothing fits.
  task<void> compare(const round& decided) {
    for (const round_node& node : decided.nodes) {
      if (is_torchruns(node)) continue;
      const std::string theirs =
          co_await run_.store.client().get(run_.keys.ranks(node.place), role_wait);
      const std::string ours = torchrun_ranks(decided, node);
      if (are_same_ranks(theirs, ours)) continue;
      run_.refuse(fmt::format("torchrun's node 0 gives node {} the ranks {}, not {}",
                              node.place, theirs, ours));
    }
  }

  manual_run& run_;
  const int place_;
  const int nodes_;
  int next_ = 0;
  const std::unique_ptr<served_store> served_;
};

class manual_backend final : public rendezvous_backend {
 public:
  manual_backend(runtime& rt, const rendezvous_options& options)
      : run_(rt, options),
        nodes_(options.limits.max_nodes),
        place_(options.node_rank),
        close_limit_(options.limits.close) {}

  store& meeting_place() override { return run_.store.client(); }
  task<std::unique_ptr<coordinator_seat>> take_seat(
      const node_description& self) override;
  task<bool> is_closed() override { co_return false; }
  task<void> coordinator_died(std::string) override {
    has_died_.set();
    co_return;
  }
  duration patience() const noexcept override { return std::chrono::seconds(2); }
  bool has_successors() const noexcept override { return false; }
  std::optional<int> place() const noexcept override { return place_; }
  task<void> finish() override;

 private:
  [[nodiscard]] task<std::unique_ptr<served_store>> serve();
  [[nodiscard]] task<void> introduce(const node_description& self);

  manual_run run_;
  const std::size_t nodes_;
  const int place_;
  const duration close_limit_;
  bool is_counted_ = false;
  bool has_finished_ = false;
  /// How many had finished with this one.
  std::int64_t finished_ = 0;
  event has_died_;
};

task<std::unique_ptr<coordinator_seat>> manual_backend::take_seat(
    const node_description& self) {
  for (;;) {
    has_died_.reset();
    std::unique_ptr<served_store> served;
    if (place_ == 0) served = co_await serve();
    co_await introduce(self);
    bool is_first_of_ours = true;
    for (int place = 0; place < place_ && is_first_of_ours; ++place) {
      const round_node before = co_await run_.node_at(place);
      is_first_of_ours = is_torchruns(before);
    }
    if (is_first_of_ours)
      co_return std::make_unique<manual_seat>(run_, place_, nodes_, std::move(served));
    co_await has_died_;
    is_counted_ = false;
  }
}

/// Serves the store. An agent that has just been started again may find its predecessor
/// there for a moment.
task<std::unique_ptr<served_store>> manual_backend::serve() {
  seat_tries tries;
  const time_point until = later(run_.rt.home().now(), until_endpoint_is_free);
  for (;;) {
    std::unique_ptr<served_store> served = co_await run_.store.try_to_serve();
    if (served) co_return served;
    if (run_.rt.home().now() >= until)
      run_.refuse("node 0 serves the store. " + run_.store.objection());
    co_await tries.until_next();
  }
}

/// Tells the others what this node is, as torchrun's agents do.
task<void> manual_backend::introduce(const node_description& self) {
  tcp_store& store = run_.store.client();
  if (place_ > 0 && !is_counted_) co_await store.count_worker();
  is_counted_ = true;
  const round_node node(self, place_);
  co_await store.set(run_.keys.role(place_), torchrun_role(node));
}

/// torchrun's agents wait for each other at the end, since one of them serves the store.
/// A wait that was given up may be begun again, and this node is counted once.
task<void> manual_backend::finish() {
  tcp_store& store = run_.store.client();
  if (!std::exchange(has_finished_, true))
    finished_ = co_await store.add(run_.keys.finished(), 1);
  if (finished_ == static_cast<std::int64_t>(nodes_))
    co_await store.set(run_.keys.all_finished(), "1");
  if (place_ > 0 || !run_.has_outsiders) co_return;
  co_await store.wait(run_.keys.all_finished(), close_limit_);
  co_await sleep_for(last_look);
}

}  // namespace

std::unique_ptr<rendezvous_backend> make_manual_backend(
    runtime& rt, const rendezvous_options& options) {
  const rendezvous_limits& limits = options.limits;
  const bool is_place = options.node_rank >= 0 &&
                        static_cast<std::size_t>(options.node_rank) < limits.max_nodes;
  if (limits.min_nodes != limits.max_nodes || !is_place) {
    throw rendezvous_error(
        rendezvous_error_kind::bad_options,
        fmt::format(
            "rendezvous: node rank {} of {} to {} nodes; a manual run has a fixed "
            "number of nodes, which are numbered from 0",
            options.node_rank, limits.min_nodes, limits.max_nodes));
  }
  return std::make_unique<manual_backend>(rt, options);
}

}  // namespace manyworlds::inline v0::detail
